//! On-disk structs of a stripe set.
