//! Experiments on the user's own disks, with reliable verdicts: `pinstripe lab`.
//!
//! A case is a plan of variants. `run` measures each variant several times in interleaved order,
//! watched by `guard`, until the [statistics](pinstripe_stats) are narrow enough. The `result`
//! contains the `fingerprint` of the machine, and can be saved, shown and compared.
//!
//! A module imports only from lower rows of this table:
//!
//! | floor | modules |
//! |---|---|
//! | pages | `report` |
//! | text, and several machines | `show`, `agents` |
//! | experiments | `cases`, `knobs` |
//! | their loads, and what follows from results | `arrays`, `catalog`, `fio`, `scratch`, `advice` |
//! | work | `io`, `program`, `safety` |
//! | the engine | `run` |
//! | what is kept | `result` |
//! | what is observed | `fingerprint`, `guard` |
//! | ground | `display`, `histogram`, `machine`, `questions`, `table` |
//!
//! This crate does not print, read the environment, or ask the user anything. Threads are started
//! only in `io/`, `run/` and `agents/`; sockets are opened only in `agents/`.

#![allow(
    clippy::disallowed_methods,
    reason = "the lab measures, so it uses files, threads and clocks"
)]

mod advice;
mod agents;
mod arrays;
mod cases;
mod catalog;
mod display;
mod fingerprint;
mod fio;
mod guard;
mod histogram;
mod io;
mod knobs;
mod machine;
mod program;
mod questions;
mod report;
mod result;
mod run;
mod safety;
mod scratch;
mod show;
mod table;
#[cfg(test)]
mod verdicts;

pub use advice::{Advice, NEGLIGIBLE, advise};
pub use agents::{
    Agent, AgentReport, Assignment, ConnectionEnd, Coordinator, CoordinatorOptions, FRAME_BYTES,
    FrameOpener, GREETING_BYTES, Greeting, LENGTH_BYTES, MAC_BYTES, Permits, PermittedDevice,
    SessionKeys, Token, decode_answer, decode_ask, encode as encode_message,
};
pub use arrays::{
    Cost as ArrayCost, LOADS as ARRAY_LOADS, LOG_BYTES as ARRAY_LOG_BYTES, Load as ArrayLoad,
    Requests as ArrayRequests, TABLE_BYTES as ARRAY_TABLE_BYTES, cpu as own_cpu_time,
    making as array_options, noise as array_noise, run as run_array_load, start as start_array,
};
pub use cases::{
    ALL as CASES, Case, CaseOption, KnobCommand, OtherWalker, Setting, ValueForm, Values,
    again as command_again, alone as command_alone, command_line, extent_of, find as find_case,
    leftovers, refuse_plan_without_room, remove_leftover, tables as case_tables, walk_beside,
    with_knob_commands,
};
pub use catalog::{
    MEMBERS as CATALOG_MEMBERS, NODES as CATALOG_NODES, ROWS as CATALOG_ROWS,
    STREAMS as CATALOG_STREAMS, Workload as CatalogWorkload,
    commit_stream as commit_catalog_stream, new_store as new_catalog_store,
    write_streams as write_catalog_streams,
};
pub use fingerprint::PLACE as PLACE_FACT;
pub use fio::import as import_fio;
pub use io::{
    Area, Content, Direction, Engine as IoEngine, Job, Order, Pattern, Target as JobTarget,
    run as run_job,
};
pub use knobs::{
    Knob, PAST as PAST_KNOBS, VERSION as KNOBS_VERSION, knobs, to_toml as knobs_to_toml,
    undecided as undecided_knobs,
};
pub use machine::{Machine, file_system};
pub use questions::ALL as QUESTIONS;
pub use report::{page as report_page, page_of_files as report_page_of_files};
pub use result::{
    Compared, Entry as HistoryEntry, Host, Results, Run as LabRun, Series, Variant,
    append as append_to_history, changes, compare_executions, load as load_results,
    load_all as load_all_results, put as put_file, read_history, refuse_repeated,
    save as save_results,
};
pub use run::{
    Effort, Live, Origin, Plan, Remaining, RunStage, Runner, Until, VariantSpec, measure,
    measure_by,
};
pub use safety::{Consent, examine as examine_places};
pub use show::{
    OutputFormat, change_lines, clock_line, parameters_text, show as show_results, sides_line,
    spark as sparkline,
};
pub use table::{Align, Cell, Table};
