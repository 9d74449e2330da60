//! Helpers that tests of several rooms need.

/// Reports that a test could not run: on standard error, and to the summary of all tests.
pub fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    std::io::Write::write_all(&mut log, format!("{test}: {reason}\n").as_bytes()).unwrap();
}
