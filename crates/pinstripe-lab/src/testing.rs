//! What tests of several rooms need.

/// Says that a test could not run, to whoever runs it and to the summary of all.
pub fn skipped(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    let Some(log) = std::env::var_os("PINSTRIPE_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    std::io::Write::write_all(&mut log, format!("{test}: {reason}\n").as_bytes()).unwrap();
}
