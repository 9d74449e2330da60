//! Endpoints that fail, lie, or are slow.
