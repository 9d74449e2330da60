//! What a backup costs that waits for its input: its listings are counted, and scaled to an hour.

use std::io::Write;
use std::process::Stdio;

use pinstripe_lab::Table;

use super::Settings;
use super::stand::{HostTool, ProxiedServer, RequestCounts};
use crate::Result;
use crate::targets::{Target, figure_row, figures};

/// LISTs of an hour, at most.
const LISTS: f64 = 150.0;

pub fn measure(settings: &Settings) -> Result<Table> {
    let endpoint = ProxiedServer::start(&settings.bench.work, "endpoint-watch")?;
    let host = HostTool::new(settings, "watch")?;
    let place = endpoint.place("watch");
    host.make(std::slice::from_ref(&place), 0)?;
    let seconds = settings.wait.as_secs_f64();
    let note = format!(
        "A backup of standard input that brings nothing for {seconds:.0} s. Listings in that time, after it \
         had begun, scaled to an hour; those of its beginning and end are counted once."
    );
    let mut command = host.command(&place, "backup");
    command.args(["--stdin", "late"]).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot start pinstripe: {error}"))?;
    let mut input = child.stdin.take().ok_or("it has no standard input")?;
    input.write_all(b"begun").map_err(|error| error.to_string())?;
    // It has begun when its session is there.
    let sessions = endpoint.server.file("watch/sessions");
    let has_begun = || std::fs::read_dir(&sessions).is_ok_and(|mut it| it.next().is_some());
    for _ in 0..3000 {
        if has_begun() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    if !has_begun() {
        return Err("the backup did not begin within 30 s".to_owned());
    }
    let begun = RequestCounts::take(&endpoint.proxy);
    std::thread::sleep(settings.wait);
    let waited = RequestCounts::take(&endpoint.proxy);
    drop(input);
    let ended = child.wait().map_err(|error| error.to_string())?;
    if !ended.success() {
        return Err(format!("the backup ended with {ended}"));
    }
    let last = RequestCounts::take(&endpoint.proxy);
    let an_hour = waited.lists * 3600.0 / seconds + begun.lists + last.lists;
    let mut table = figures("A backup that waits", note);
    figure_row(&mut table, "LISTs in an hour", &[an_hour], 0, Target::AtMost(LISTS));
    figure_row(&mut table, "LISTs while it waited", &[waited.lists], 0, Target::None);
    figure_row(&mut table, "all requests while it waited", &[waited.all], 0, Target::None);
    Ok(table)
}
