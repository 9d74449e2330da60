//! Pages as a browser shows and prints them: Chromium without a screen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

/// Widths at which a page is looked at, in pixels.
const WIDTHS: [u32; 2] = [1280, 400];

fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
    let mut log = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    std::io::Write::write_all(&mut log, format!("{test}: {reason}\n").as_bytes()).unwrap();
}
