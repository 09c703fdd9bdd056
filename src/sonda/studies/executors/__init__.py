"""Where the tasks of a study or an exploration run: in this process, in processes of this machine, on a cluster."""
