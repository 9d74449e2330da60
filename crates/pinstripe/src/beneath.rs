//! beneath
