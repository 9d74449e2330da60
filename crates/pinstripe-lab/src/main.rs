//! Measures each stage of pinstripe on the disks and data of whoever runs it.

mod cases;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(case), dir) = (args.next(), args.next()) else {
        eprintln!("usage: pinstripe-lab walk [DIR]");
        return ExitCode::from(2);
    };
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    if case != "walk" {
        eprintln!("no such case: {}", case.display());
        return ExitCode::from(2);
    }
    match cases::walk::run(&dir) {
        Ok(rows) => {
            println!("| walker | entries/s | user+sys s |\n|---|---:|---:|");
            for row in rows {
                let rate = row.entries_per_second / 1000.0;
                println!("| {} | {rate:.0}k | {:.3} |", row.walker, row.cpu_seconds);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pinstripe-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
