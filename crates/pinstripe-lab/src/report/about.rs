//! The machine and disks of a measurement, and the command that repeats it.

use maud::{Markup, html};
use pinstripe_base::units::format_size;

use crate::cases;
use crate::fingerprint::{Fingerprint, Place};
use crate::result::{Results, Variant};
use crate::show::{clock_line, parameters_text};

/// The information in addition to the figures: notes of the case, and the disturbances of runs.
pub(super) fn notes(results: &Results) -> Markup {
    let lines: Vec<String> =
        results.notes.iter().cloned().chain(crate::show::disturbance_lines(results)).collect();
    html! {
        @if !lines.is_empty() {
            section { h2 { "Notes" } ul class="notes" { @for line in &lines { li { (line.trim()) } } } }
        }
    }
}

/// The machine, its disks and settings; with several hosts, each host separately.
pub(super) fn fingerprint(results: &Results) -> Markup {
    let mut lines = Vec::new();
    if results.hosts.is_empty() {
        lines.extend(of_machine(&results.fingerprint));
    }
    for host in &results.hosts {
        lines.push((host.address.clone(), clock_line(host)));
        lines.extend(host.lost.iter().map(|why| ("lost".to_owned(), why.clone())));
        lines.extend(of_machine(&host.fingerprint));
    }
    lines.push(("program".to_owned(), results.program.clone()));
    let began = format!("{}, for {:.0} s", utc(results.started_seconds), results.elapsed_s);
    lines.push(("measured".to_owned(), began));
    html! {
        section class="print" {
            h2 { "Measured on" }
            dl { @for (name, value) in &lines { dt { (name) } dd { (value) } } }
        }
    }
}

fn of_machine(print: &Fingerprint) -> Vec<(String, String)> {
    let machine = &print.machine;
    let mut lines = match machine.is_known() {
        true => vec![
            ("processor".to_owned(), format!("{}, {} threads", machine.processor, machine.cores)),
            ("memory".to_owned(), format_size(machine.memory_bytes)),
            ("kernel".to_owned(), format!("Linux {}", machine.kernel)),
        ],
        false => {
            vec![("machine".to_owned(), "these results do not describe the machine".to_owned())]
        }
    };
    lines.extend(print.governor.clone().map(|it| ("governor".to_owned(), it)));
    lines.extend(print.host.as_ref().map(|it| {
        ("host".to_owned(), format!("{it}: an anonymous number that identifies the machine"))
    }));
    let cache: Vec<String> =
        print.page_cache.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if !cache.is_empty() {
        lines.push(("page cache".to_owned(), cache.join(", ")));
    }
    lines.extend(print.places.iter().map(|it| (it.path.clone(), of_place(it))));
    lines
}

fn of_place(place: &Place) -> String {
    let mut parts = Vec::new();
    parts.extend(place.file_system.clone());
    parts.extend(place.mount_options.as_ref().map(|it| format!("mounted {it}")));
    parts.extend(
        place
            .space
            .map(|(all, free)| format!("{} free of {}", format_size(free), format_size(all))),
    );
    if let Some(disk) = &place.disk {
        let kind = match disk.is_rotational {
            Some(true) => Some("the disk reports that it is rotational"),
            Some(false) => Some("the disk reports that it is not rotational"),
            None => None,
        };
        parts.push(format!("on {}", disk.name));
        parts.extend(disk.model.clone());
        parts.extend(disk.firmware.as_ref().map(|it| format!("firmware {it}")));
        parts.extend(disk.identity.clone());
        parts.extend(disk.bytes.map(format_size));
        parts.extend(kind.map(str::to_owned));
        parts.extend(disk.settings.iter().map(|(name, value)| format!("{name} {value}")));
    }
    parts.join(", ")
}

/// The command lines that repeat the measurement: of all variants, and of each variant alone.
pub(super) fn reproduce(results: &Results) -> Markup {
    let parameters = parameters_text(&results.case, &results.parameters);
    html! {
        section class="again" {
            h2 { "Measure it again" }
            @if let Some(line) = line(results) { pre { code class="command" { (line) } } }
            (alone(results))
            p class="quiet" {
                "Seed " (results.seed) ". "
                @if !parameters.is_empty() { "All settings: " (parameters) ". " }
                "This page contains its results: " code { "pinstripe lab show" } " and " code { "pinstripe lab report" }
                " can read the results from this page."
            }
        }
    }
}

/// The command line for all variants; for an unknown case, the command line that was typed.
fn line(results: &Results) -> Option<String> {
    let typed = || Some(results.command.clone()).filter(|it| !it.is_empty());
    cases::again(results).or_else(typed).map(|words| cases::command_line(&words))
}

/// The command lines for single variants, collapsed until the reader opens them, and never printed.
fn alone(results: &Results) -> Markup {
    /// The most command lines on a page.
    const MOST: usize = 60;
    let line = |it| cases::alone(results, it).map(|words| (it, cases::command_line(&words)));
    let lines: Vec<(&Variant, String)> = results.variants.iter().filter_map(line).collect();
    html! {
        @if lines.len() > 1 {
            details class="screen" {
                summary { "Commands that measure only one variant" }
                dl { @for (variant, line) in lines.iter().take(MOST) { dt { (variant.name) } dd { code class="command" { (line) } } } }
                @if lines.len() > MOST { p class="quiet" { (lines.len() - MOST) " more results are shown by " code { "pinstripe lab show" } "." } }
            }
        }
    }
}

/// Formats a time to the second, for example `2026-11-22 16:43:07 UTC`, to distinguish two results
/// of the same minute.
pub(super) fn utc_to_seconds(seconds: i64) -> String {
    let text = utc(seconds);
    let minute = text.trim_end_matches(" UTC");
    format!("{minute}:{:02} UTC", seconds.rem_euclid(60))
}

/// Formats a time as `2026-11-22 16:43 UTC` by the civil calendar: days are counted from
/// 0000-03-01, so that a leap day ends a year (Hinnant, chrono-Compatible Low-Level Date
/// Algorithms).
pub(super) fn utc(seconds: i64) -> String {
    let (days, time) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", time / 3600, time / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (-1, "1969-12-31 23:59 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
        assert_eq!(utc_to_seconds(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(utc_to_seconds(-1), "1969-12-31 23:59:59 UTC");
    }
}
