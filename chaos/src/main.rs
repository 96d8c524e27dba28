//! `dwell-chaos`: campaigns of faults from the command line.

fn main() {}
