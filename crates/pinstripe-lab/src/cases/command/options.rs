//! The options of the case.

use crate::cases::{CaseOption, ValueForm};

const fn option(
    name: &'static str,
    value: &'static str,
    form: ValueForm,
    about: &'static str,
    more: &'static str,
) -> CaseOption {
    CaseOption { name, value, form, default: None, about, more }
}

/// All options.
pub(super) const OPTIONS: &[CaseOption] = &[
    option(
        "command",
        "COMMAND",
        ValueForm::Operands,
        "Command to time; may be given more than once, and each command is compared with the first",
        "Each command is one word of this command line, so it is written in quotes. A name in braces, as in \
         {n}, is replaced by the values of the parameter 'n'.",
    ),
    option(
        "command-name",
        "NAME",
        ValueForm::Texts,
        "Name of a command in the results; given once for each command, in their order",
        "NAME may contain parameters. [default: the command]",
    ),
    option(
        "reference",
        "NAME",
        ValueForm::Text,
        "The command with which the others are compared [default: the first command]",
        "NAME is a command, its name, or the name of a variant in the results.",
    ),
    option(
        "prepare",
        "CMD",
        ValueForm::Texts,
        "Command to run before each run, which is not timed",
        "Given once for all commands, or once for each command. For example, CMD drops caches, or removes the \
         files that the command makes.",
    ),
    option(
        "conclude",
        "CMD",
        ValueForm::Texts,
        "Command to run after each run, which is not timed",
        "Given once for all commands, or once for each command. It is also run if the run fails or is \
         interrupted.",
    ),
    option(
        "setup",
        "CMD",
        ValueForm::Text,
        "Command to run once before the first run",
        "If CMD contains parameters, it is run once for each of their values. All variants take turns, so the \
         effects of all setups must be able to exist at the same time; use --prepare for what must change from \
         run to run.",
    ),
    option(
        "cleanup",
        "CMD",
        ValueForm::Text,
        "Command to run once at the end, also after an error or an interrupt",
        "If CMD contains parameters, it is run once for each of their values.",
    ),
    option(
        "parameter-scan",
        "VAR MIN MAX",
        ValueForm::Words,
        "Run with each number from MIN to MAX in place of {VAR}",
        "May be given more than once, also together with --parameter-list: every combination is measured. A \
         command that does not contain {VAR} is measured only once, unless another command that belongs to it \
         (--prepare, --setup and so on) contains {VAR}.",
    ),
    option(
        "parameter-step-size",
        "STEP",
        ValueForm::Text,
        "The step of every --parameter-scan [default: 1]",
        "",
    ),
    option(
        "parameter-list",
        "VAR VALUE,...",
        ValueForm::Words,
        "Run with each of these values in place of {VAR}",
        "May be given more than once. A comma that belongs to a value is written as '\\,'.",
    ),
    CaseOption {
        default: Some("sh"),
        ..option(
            "shell",
            "SHELL",
            ValueForm::Text,
            "Shell that runs the commands, or 'none' to start them without a shell",
            "SHELL may have options, as in 'bash --norc'; it is called with -c. The start of the shell is part of \
             each time. With 'none', a command is split into words at blanks and quotes, and the commands that are \
             not timed are run by sh.",
        )
    },
    option(
        "input",
        "FILE",
        ValueForm::Path,
        "File to use as standard input of the timed commands [default: no input]",
        "",
    ),
    option(
        "output",
        "WHERE",
        ValueForm::Text,
        "Standard output of the timed commands: null, pipe, inherit, or a file [default: null, or \
         pipe with --same-output]",
        "With null, the output is discarded by the kernel; some programs notice this and do less work. With \
         pipe, pinstripe reads the output and discards it. With inherit, the output is that of pinstripe. Any \
         other word is the name of a file, which each run replaces.",
    ),
    option(
        "same-output",
        "",
        ValueForm::Flag,
        "Check that every run of every command prints the same bytes",
        "The measurement stops at the first run whose standard output differs. The check is made after the run, \
         but a pipe whose content is checked is read more slowly than one whose content is discarded.",
    ),
    option(
        "ignore-failure",
        "",
        ValueForm::Flag,
        "Measure commands that fail, too",
        "Without --ignore-failure, the first command that ends with another exit code than 0 stops the \
         measurement, with exit code 1. With it, the exit code is a column of the table.",
    ),
    option(
        "timeout",
        "S",
        ValueForm::Number,
        "Kill a command that runs longer than this time in seconds, and stop the measurement",
        "",
    ),
];
