//! Stories of pairs that failed once, as they were shortened: each must hold from now on.
