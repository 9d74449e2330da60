//! Figures as Prometheus reads them, in a file that is replaced as a whole: for the textfile
//! collector of its node exporter.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::Error;
use pinstripe_base::sync::Stop;

use super::ShownStatus;
use crate::run::Run;

/// The interval at which figures are written.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes figures until `over` is set, and removes the file then.
pub(super) fn keep(run: &Run, file: &Path, status: &dyn Fn() -> ShownStatus, over: &Stop) {
    let mut is_told = false;
    loop {
        let written = write(file, &text(&status()));
        if let Err(error) = written
            && !std::mem::replace(&mut is_told, true)
        {
            run.monitor.warning("metrics", Error::io("cannot be written", file, error));
        }
        if over.wait(INTERVAL) {
            // Figures of a process that is gone would look like those of one that stands still.
            let _ = fs::remove_file(file);
            return;
        }
    }
}

/// A reader sees the old file or the new one. What a power cut leaves of it does not matter.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new: PathBuf = file.with_file_name(name);
    fs::write(&new, text)?;
    fs::rename(&new, file)
}

fn text(status: &ShownStatus) -> String {
    let labels = format!("verb=\"{}\",mountpoint=\"{}\"", status.verb, label(&status.mountpoint));
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, value: f64| {
        let _ = writeln!(text, "# TYPE pinstripe_shown_{name} {kind}");
        let _ = writeln!(text, "pinstripe_shown_{name}{{{labels}}} {value}");
    };
    let memory = &status.memory;
    add("memory_budget_bytes", "gauge", memory.budget_bytes as f64);
    add("memory_held_bytes", "gauge", memory.held_bytes as f64);
    add("fetched_demanded_bytes_total", "counter", memory.demanded_bytes as f64);
    add("fetched_ahead_bytes_total", "counter", memory.ahead_bytes as f64);
    add("fetched_wasted_bytes_total", "counter", memory.wasted_bytes as f64);
    if let Some(source) = &status.source {
        add("source_in_flight", "gauge", source.in_flight as f64);
        add("source_late_total", "counter", source.late as f64);
        add("source_median_seconds", "gauge", source.median_seconds);
        add("source_p99_seconds", "gauge", source.p99_seconds);
    }
    if let Some(cache) = &status.cache {
        add("cache_held_bytes", "gauge", cache.held_bytes as f64);
        add("cache_found_bytes_total", "counter", cache.found_bytes as f64);
        add("cache_missed_bytes_total", "counter", cache.missed_bytes as f64);
        add("cache_damaged_cells_total", "counter", cache.damaged_cells as f64);
    }
    text
}

/// A text as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_lines_of_the_text_format() {
        let mut status = ShownStatus::new("mount", Path::new("/a \"b\""), "x", Duration::ZERO);
        status.memory.held_bytes = 5;
        let text = text(&status);
        let line =
            "pinstripe_shown_memory_held_bytes{verb=\"mount\",mountpoint=\"/a \\\"b\\\"\"} 5";
        assert!(text.lines().any(|it| it == line), "{text}");
        assert!(text.lines().all(|it| it.starts_with("# TYPE ") || it.starts_with("pinstripe_")));
    }
}
