//! Measures each stage of pinstripe on the disks and data of whoever runs it.

mod cases {
    pub mod codec;
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((case, rest)) if case == "codec" => match cases::codec::run(rest) {
            Ok(rows) => {
                rows.iter().for_each(|row| println!("| {} |", row.join(" | ")));
                std::process::ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("pinstripe-lab: {why}");
                std::process::ExitCode::from(2)
            }
        },
        _ => {
            eprintln!("usage: pinstripe-lab codec [--mib N] [--records LIST] [NAME=PATH ...]");
            std::process::ExitCode::from(2)
        }
    }
}
