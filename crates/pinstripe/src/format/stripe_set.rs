//! stripe set
