"""A model under traffic, in MLPerf's scenarios."""
