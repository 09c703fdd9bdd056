"""Where in the program its time goes: functions and lines, from the sampled stacks of its threads."""
