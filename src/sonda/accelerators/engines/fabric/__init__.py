"""The parts on a chip that engines share: distribution, multiplication, reduction and collection networks."""
