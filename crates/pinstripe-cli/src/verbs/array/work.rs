//! Follows long work to its end, in whichever process it is done.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pinstripe_array::{
    Detail, MadeFiles, ManageAction, Reached, Reply, ReportDetail, Request, SlotDetail,
    SlotStateDetail, reach_array,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;

use super::register::register;
use super::status;
use crate::escape;
use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::signals;

/// The interval at which the work's progress is polled.
const LOOK: Duration = Duration::from_millis(100);

const GAUGE: Gauge =
    Gauge { label: "working", done_bytes: |monitor| monitor.get(Counter::CheckedBytes), passes: 1 };

/// Whether to wait for work that was started.
#[derive(clap::Args)]
pub struct FollowArgs {
    /// Do not wait until the rebuild, check or reshape is finished; it continues in the process
    /// that serves the array or, if no process serves the array, when the array is opened again
    #[arg(long)]
    no_wait: bool,
}

/// The number of the first report of work that has not ended yet, taken before new work is started:
/// [`conclude`] shows the reports from this number on.
///
/// # Errors
/// Fails with the errors of the array.
pub fn ended(reached: &mut Reached) -> Result<u64> {
    Ok(reached.detail()?.reports.last().map_or(0, |last| last.number + 1))
}

/// Examines the devices that are named in changes of members, then sends the requests to an array
/// one after the other, reports each result, and follows the started work.
///
/// # Errors
/// If a device cannot be used, nothing was changed, and files that were created for devices are
/// removed again. If a request fails, the requests before it are done. Fails with the errors of
/// [`conclude`].
pub fn do_all(
    run: &Run,
    name: &str,
    patience: &FollowArgs,
    newcomers: MadeFiles,
    acts: Vec<ManageAction>,
    requests: impl IntoIterator<Item = Request>,
) -> Result<Ending> {
    let mut reached = reach_array(name, &register()?, &run.common.device_faults()?, &run.monitor)?;
    let mut before = ended(&mut reached)?;
    let checked = reached.ask(&Request::Check { acts }).map(drop);
    let asked = checked.and_then(|()| {
        newcomers.keep();
        requests.into_iter().try_for_each(|request| {
            let is_failing = matches!(request, Request::Manage { act: ManageAction::Fail { .. } });
            ask_all(run, &mut reached, [request])?;
            if is_failing {
                // A fill that this act ended does not fail this verb.
                before = ended(&mut reached)?;
            }
            Ok(())
        })
    });
    if let Err(error) = asked {
        // Changes before the failure stay; the array is still closed in order.
        reached.close()?;
        return Err(error);
    }
    conclude(run, reached, patience, before)
}

/// Sends the requests to an array one after the other, and reports each result.
///
/// # Errors
/// If a request fails, the requests before it are done.
pub fn ask_all(
    run: &Run,
    reached: &mut Reached,
    requests: impl IntoIterator<Item = Request>,
) -> Result<()> {
    for request in requests {
        if let Reply::Done { said } = reached.ask(&request)? {
            run.screen.say(&said);
        }
    }
    Ok(())
}

/// Follows started work to its end unless `--no-wait` is given, closes an array that was opened in
/// this process, and shows the array.
///
/// # Errors
/// Fails with [`Kind::Interrupted`] after a signal, when the completed work is kept; with
/// [`Kind::Changed`] for a scrub that another process cancelled; with the errors of
/// [`check_finished`] and of the array.
pub fn conclude(
    run: &Run,
    mut reached: Reached,
    patience: &FollowArgs,
    before: u64,
) -> Result<Ending> {
    let stop = signals::catch()?;
    let followed = match patience.no_wait {
        true => reached.detail(),
        false => follow(run, &mut reached, stop.as_flag()),
    };
    let is_served = reached.is_served();
    let closed = reached.close();
    let mut detail = followed?;
    if let Some(closed) = closed? {
        detail.slots = closed.slots;
    }
    let mut is_wrong = false;
    for report in detail.reports.iter().filter(|report| report.number >= before) {
        print_report(run, report)?;
        is_wrong |= report.mismatches.iter().any(|it| !it.is_mended);
    }
    let ending = status::ending(run, &detail);
    if detail.work.is_some() && !is_served {
        run.screen.say("the unfinished work continues when the array is opened again");
    }
    check_finished(&detail, before)?;
    let cancelled = detail.reports.iter().filter(|report| report.number >= before);
    if let Some(report) = cancelled.rev().find(|it| is_scrub(it) && !it.is_finished) {
        return Err(was_cancelled(report, &detail));
    }
    let code = if is_wrong { exit::REPAIRABLE } else { exit::DONE };
    Ok(Ending { code, ..ending })
}

/// Checks that each member that had to be filled was filled, by this work or by later work, and
/// that an array that grew has all of its members.
///
/// # Errors
/// Fails with [`Kind::Io`] for a device that failed, or was marked as failed, before the fill of
/// the device ended.
pub fn check_finished(detail: &Detail, before: u64) -> Result<()> {
    let reports = || detail.reports.iter().filter(|report| report.number >= before);
    let fills = || reports().filter(|report| report.kind == "recover");
    let was_filled = |slot: Option<usize>, after: Option<u64>| {
        fills().any(|it| it.slot == slot && Some(it.number) > after && it.is_finished)
    };
    let mut failed = fills().filter(|it| !it.is_finished && !was_filled(it.slot, Some(it.number)));
    if let Some(report) = failed.next() {
        let slot = report.slot.map(|slot| format!(" for slot {slot}")).unwrap_or_default();
        let when = format!("while it was being filled{slot}");
        let failed = (report.device.as_deref(), report.reason.as_deref());
        return Err(has_failed(failed, &when, detail));
    }
    let is_lost = |slot: &&SlotDetail| slot.state != SlotStateDetail::InSync;
    let lost = || detail.slots.iter().filter(is_lost).filter(|_| detail.work.is_none());
    let is_filled = |slot: &&SlotDetail| was_filled(Some(slot.slot), None);
    if let Some(slot) = lost().find(is_filled) {
        let when = format!("when it had been filled for slot {}", slot.slot);
        return Err(has_failed(failure_of(slot), &when, detail));
    }
    match lost().next().filter(|_| reports().any(|it| it.kind == "reshape")) {
        Some(slot) => {
            let when = format!("in slot {} while the array grew", slot.slot);
            Err(has_failed(failure_of(slot), &when, detail))
        }
        None => Ok(()),
    }
}

/// The device of a slot, and why it failed.
fn failure_of(slot: &SlotDetail) -> (Option<&Path>, Option<&str>) {
    (slot.device.as_deref(), slot.reason.as_deref())
}

/// The error for a device that failed, for a reason if that is known.
fn has_failed(
    (device, reason): (Option<&Path>, Option<&str>),
    when: &str,
    detail: &Detail,
) -> Error {
    let reason = reason.map(|it| format!(": {it}")).unwrap_or_default();
    let what = format!("failed {when}, and the array does not use it{reason}");
    let error = match device {
        Some(device) => Error::new(Kind::Io, what).at(device),
        None => Error::new(Kind::Io, format!("a device {what}")),
    };
    error.advice(format!("see 'pinstripe array detail {}', and use another device", detail.name))
}

fn is_scrub(report: &ReportDetail) -> bool {
    matches!(&*report.kind, "check" | "repair")
}

/// The error for a scrub that another process ended.
fn was_cancelled(report: &ReportDetail, detail: &Detail) -> Error {
    let what = format!(
        "the {} was cancelled when it had compared {} of the {} on each member",
        report.kind,
        format_size(report.bytes),
        format_size(detail.member_bytes)
    );
    let again = if report.kind == "repair" { " --repair" } else { "" };
    Error::new(Kind::Changed, what).advice(format!(
        "to compare the complete array, run 'pinstripe array scrub {}{again}'",
        detail.name
    ))
}

/// Reports the result of work. Blocks that could not be restored are losses.
fn print_report(run: &Run, report: &ReportDetail) -> Result<()> {
    for it in &report.mismatches {
        run.screen.event(&Event::new("mismatch").with_fields(it))?;
        let whose = match (&it.device, it.slot) {
            (Some(device), Some(slot)) => format!("{} (slot {slot})", escape::path(device)),
            (_, Some(slot)) => format!("slot {slot}"),
            (_, None) => "unknown member".to_owned(),
        };
        let fate = if it.is_mended { ", repaired" } else { "" };
        run.screen.row(&format!(
            "mismatch: {whose} at byte {} of the member's data{fate}",
            it.member_offset
        ))?;
    }
    if is_scrub(report) && report.is_finished {
        let found = match report.mismatches.len() {
            0 => "nothing is wrong",
            _ => "the mismatches that were found are listed above",
        };
        run.screen.say(&format!("compared {} of each member: {found}", format_size(report.bytes)));
    }
    if report.lost_blocks > 0 {
        let what = format!(
            "{} (4 KiB each) of the array cannot be rebuilt",
            counted(report.lost_blocks, "block")
        );
        let error = Error::new(Kind::TooManyLosses, what).advice(
            "reads of the lost blocks fail until the blocks are written again: restore the blocks \
             from a backup",
        );
        run.monitor.loss(&report.kind, error);
    }
    Ok(())
}

fn interrupted(work: &str, detail: &Detail) -> Error {
    let (what, advice) = match &detail.served {
        Some(served) => (
            format!(
                "this command no longer waits for {work}, which continues in process {}",
                served.process
            ),
            format!("to wait for the work, run 'pinstripe array wait {}'", detail.name),
        ),
        None => (
            format!("{work} was interrupted"),
            "completed work is kept; the remaining work continues when the array is opened again"
                .to_owned(),
        ),
    };
    Error::new(Kind::Interrupted, what).advice(advice)
}

/// Waits until no work is running.
///
/// # Errors
/// Fails with the errors of [`conclude`].
pub fn follow(run: &Run, reached: &mut Reached, stop: &AtomicBool) -> Result<Detail> {
    let mut ticker = None;
    let mut told = 0;
    loop {
        let detail = reached.detail()?;
        let Some(work) = &detail.work else { return Ok(detail) };
        if !detail.is_usable {
            return Err(Error::new(Kind::TooManyLosses, "the array is no longer usable")
                .advice("'pinstripe array detail' shows which members failed"));
        }
        run.monitor.set_total(work.all_bytes, 0);
        run.monitor.add(Counter::CheckedBytes, work.done_bytes.saturating_sub(told));
        told = told.max(work.done_bytes);
        ticker.get_or_insert_with(|| run.ticker(GAUGE));
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted(&work.kind, &detail));
        }
        std::thread::sleep(LOOK);
    }
}
