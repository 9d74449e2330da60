//! The command line that repeats a measurement from its results: all of it, or one variant alone.
//!
//! The command line is built from the parameters, whose names are option names, not from what the
//! user typed: that may contain paths relative to another directory, a file that would be
//! overwritten, and the serial number of a disk.

use pinstripe_base::units::parse_size;

use super::{Case, CaseOption, ValueForm, Values, find, shared};
use crate::result::{Parameter, Results, Variant};

/// The name of an option of a case, and its value as it is typed.
pub type Given = (&'static str, String);

/// Tells how to repeat the measurement of a case whose options do not all have the names of its
/// parameters.
#[derive(Debug)]
pub struct Again {
    /// Returns the options that set a parameter for all variants; `None` stands for the option with
    /// the parameter's name.
    pub of_all: fn(&Parameter) -> Option<Vec<Given>>,
    /// Returns the options that restrict the measurement to variants with a parameter; `None`
    /// stands for the option with the parameter's name or its plural.
    pub of_variant: fn(&Parameter) -> Option<Vec<Given>>,
    /// Another case that measures one variant alone if this case cannot.
    pub elsewhere: Option<Elsewhere>,
}

/// Another case that measures one variant of a case.
#[derive(Debug)]
pub struct Elsewhere {
    /// That case.
    pub case: &'static Case,
    /// The options for a variant of the results; `None` for an unknown variant.
    pub options: fn(&Results, &Variant) -> Option<Vec<Given>>,
}

impl Again {
    /// The options have the names of the parameters.
    pub(crate) const BY_NAME: Again =
        Again { of_all: by_name, of_variant: by_name, elsewhere: None };
}

/// The parameter is set by the option that has its name.
fn by_name(_: &Parameter) -> Option<Vec<Given>> {
    None
}

/// Options of every case that determine how long and how often to measure; the command line repeats
/// them as they were typed.
const EFFORT: [&str; 4] = ["--runs", "--time", "--warm-up", "--patience"];
/// The option that sets something before a run, and puts it back afterwards: it has two values.
const KNOB_COMMAND: &str = "--knob-command";
/// The flag that makes disturbed runs count.
const ACCEPT_NOISE: &str = "--accept-noise";
/// Options that determine which machines measure, and where on them; the command line repeats them
/// as they were typed.
const AGENTS: [&str; 3] = ["--agents", "--token-file", "--agent-timeout"];
/// Options that determine where to measure; the command line repeats them as they were typed,
/// unless the place follows from the results.
const PLACES: [&str; 2] = ["--dir", "--device"];

/// The words of the command line that repeats the measurement; `None` for an unknown case.
pub fn again(results: &Results) -> Option<Vec<String>> {
    let case = find(&results.case).ok()?;
    let own: Vec<Given> =
        results.parameters.iter().filter_map(case.again.of_all).flatten().collect();
    line(results, case, &own)
}

/// The words of the command line that measures one variant, together with the variants that it
/// depends on: a check by another program needs the variant that it checks, and an area needs the
/// area next to it.
pub fn alone(results: &Results, variant: &Variant) -> Option<Vec<String>> {
    let case = find(&results.case).ok()?;
    if let Some(Elsewhere { case, options }) = &case.again.elsewhere {
        return in_words(results, case, &options(results, variant)?, &places(results));
    }
    let own: Vec<Given> = variant.parameters.iter().flat_map(|it| options_of(case, it)).collect();
    let is_told = !own.is_empty() || results.variants.len() == 1;
    is_told.then(|| line(results, case, &own)).flatten()
}

/// Joins words as they are typed in a shell: a word is quoted if a shell would split it.
pub fn command_line(words: &[String]) -> String {
    words.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(" ")
}

/// Builds a command line with the values in `own`; the other options are taken from the parameters
/// of all variants.
fn line(results: &Results, case: &'static Case, own: &[Given]) -> Option<Vec<String>> {
    let mut given: Vec<Given> = Vec::new();
    for option in case.options {
        let typed = own.iter().filter(|(name, _)| *name == option.name);
        let mut values: Vec<&String> = typed.map(|(_, value)| value).collect();
        // A variant measured by this program needs no check by another program.
        let is_shared = own.is_empty() || option.name != shared::CROSS_CHECK.name;
        if values.is_empty() && is_shared {
            let shared = results.parameters.iter().filter(|it| it.name == option.name);
            values.extend(shared.map(|it| &it.value));
        }
        if !option.form.is_repeated() {
            values.truncate(1);
        }
        let needed = values.into_iter().filter(|it| is_needed(option, it));
        given.extend(needed.map(|it| (option.name, it.clone())));
    }
    let has = |name: &str| own.iter().chain(&given).any(|(it, _)| *it == name);
    let kinds = ["dir", "device"];
    let own_place: Vec<Given> =
        own.iter().filter(|(name, _)| kinds.contains(name)).cloned().collect();
    let places = match () {
        () if has("tree") => Vec::new(),
        () if !own_place.is_empty() => own_place,
        () => places(results),
    };
    in_words(results, case, &given, &places)
}

/// The directories or the device, as the options that name them.
fn places(results: &Results) -> Vec<Given> {
    let is_device = |word: &String| word == "--device" || word.starts_with("--device=");
    let option = if results.command.iter().any(is_device) { "device" } else { "dir" };
    results.fingerprint.places.iter().map(|it| (option, it.path.clone())).collect()
}

/// Appends the words; fails if the case no longer accepts them.
fn in_words(
    results: &Results,
    case: &'static Case,
    given: &[Given],
    places: &[Given],
) -> Option<Vec<String>> {
    let read: Vec<(&str, &str)> = given.iter().map(|(name, it)| (*name, it.as_str())).collect();
    Values::read(case.options, &read).ok()?;
    let mut words: Vec<String> = ["pinstripe", "lab", "run", case.name].map(str::to_owned).into();
    let mut operands = Vec::new();
    for (name, value) in places.iter().chain(given) {
        let option = case.options.iter().find(|it| it.name == *name);
        if option.is_some_and(|it| it.form == ValueForm::Operands) {
            operands.push(value.clone());
            continue;
        }
        words.push(format!("--{name}"));
        match option.map(|it| (it, it.form)) {
            Some((_, ValueForm::Flag)) => {}
            Some((_, ValueForm::Size)) => {
                words.push(parse_size(value).map_or(value.clone(), shared::typed))
            }
            Some((option, ValueForm::Words)) => {
                words.extend(option.typed_words(value).into_iter().map(str::to_owned));
            }
            _ => words.push(value.clone()),
        }
    }
    words.extend(typed(&results.command, &EFFORT));
    words.extend(typed(&results.command, &[KNOB_COMMAND]));
    // If disturbed runs were accepted afterwards, they are accepted here as well.
    if results.accepts_noise() || results.command.iter().any(|it| it == ACCEPT_NOISE) {
        words.push(ACCEPT_NOISE.to_owned());
    }
    if !results.hosts.is_empty() {
        words.extend(typed(&results.command, &AGENTS));
        if places.is_empty() {
            words.extend(typed(&results.command, &PLACES));
        }
    }
    words.extend(["--seed".to_owned(), results.seed.to_string()]);
    // Without this word, such an operand would be read as an option.
    words.extend(operands.iter().any(|it| it.starts_with('-')).then(|| "--".to_owned()));
    words.extend(operands);
    Some(words)
}

/// The words that were typed for these options, which every case has.
fn typed(command: &[String], options: &[&str]) -> Vec<String> {
    let mut kept = Vec::new();
    for (at, word) in command.iter().enumerate().take_while(|(_, word)| *word != "--") {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if options.contains(&name) {
            let count = if name == KNOB_COMMAND { 2 } else { usize::from(value.is_empty()) };
            kept.push(word.clone());
            kept.extend(command.iter().skip(at + 1).take(count).cloned());
        }
    }
    kept
}

/// Whether an option must be typed: it has a value that differs from its default.
fn is_needed(option: &CaseOption, value: &str) -> bool {
    match option.default {
        None => value != "none",
        Some(default) => !is_same(option.form, value, default),
    }
}

fn is_same(form: ValueForm, one: &str, other: &str) -> bool {
    let size = |it: &str| parse_size(it).ok();
    let number = |it: &str| it.parse::<f64>().ok();
    one == other
        || form == ValueForm::Size && size(one).is_some() && size(one) == size(other)
        || form == ValueForm::Number && number(one).is_some() && number(one) == number(other)
}

/// The option that sets a parameter of a variant: the option with its name, or the option with the
/// plural of its name.
fn options_of(case: &'static Case, parameter: &Parameter) -> Vec<Given> {
    if let Some(own) = (case.again.of_variant)(parameter) {
        return own;
    }
    let Parameter { name, value } = parameter;
    match name.as_str() {
        "dir" => return vec![("dir", value.clone())],
        "device" => return vec![("device", value.clone())],
        _ => {}
    }
    let many = name.strip_suffix('y').map_or(format!("{name}s"), |it| format!("{it}ies"));
    let names = [name.clone(), many, format!("{name}-each"), format!("{name}-by")];
    let option =
        names.iter().find_map(|name| case.options.iter().find(|option| option.name == name));
    let value_of = |option: &'static CaseOption| {
        let value = match (option.name, value.as_str()) {
            ("threads-by", "1") => "one",
            ("threads-by", _) => "each",
            (_, value) => value,
        };
        option.check(value).ok().map(|()| (option.name, value.to_owned()))
    };
    option.and_then(value_of).into_iter().collect()
}

/// Quotes a word so that a shell reads the same word.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_./=,:+@%".contains(it);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{ALL, Setting};
    use crate::fingerprint::Fingerprint;
    use crate::result::tests::results;
    use crate::run::VariantSpec;

    /// The parameters that a case would measure, without a run; none where it cannot be measured
    /// here.
    fn planned(case: &'static Case, setting: &Setting, given: &[(&str, &str)]) -> Option<Results> {
        let values = Values::read(case.options, given).unwrap();
        let plan = (case.plan)(setting, &values).ok()?;
        Some(Results {
            case: case.name.to_owned(),
            parameters: plan.parameters(),
            seed: setting.seed,
            fingerprint: Fingerprint::take(&plan.places()),
            hosts: Vec::new(),
            variants: plan.variants().into_iter().map(Variant::from).collect(),
            ..results(&[])
        })
    }

    /// The values that the words of a line give a case.
    fn read(words: &[String]) -> (&'static Case, Setting, Values) {
        let case = find(&words[3]).unwrap();
        let mut setting = Setting::default();
        let mut joined = Vec::new();
        let mut given: Vec<(&str, &str)> = Vec::new();
        let mut words = words[4..].iter();
        let operand = case.options.iter().find(|it| it.form == ValueForm::Operands);
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--").filter(|it| !it.is_empty()) else {
                given.extend(operand.filter(|_| word != "--").map(|it| (it.name, word.as_str())));
                continue;
            };
            let option = case.options.iter().find(|it| it.name == name);
            if option.is_some_and(|it| it.form == ValueForm::Flag) {
                given.push((name, ""));
                continue;
            }
            if let Some(option) = option.filter(|it| it.form == ValueForm::Words) {
                let all: Vec<&str> =
                    words.by_ref().take(option.word_count()).map(String::as_str).collect();
                joined.push((name, option.joined(&all).unwrap()));
                continue;
            }
            let value = words.next().unwrap();
            match name {
                "dir" => setting.dirs.push(value.into()),
                "seed" => setting.seed = value.parse().unwrap(),
                _ => given.push((name, value)),
            }
        }
        given.extend(joined.iter().map(|(name, value)| (*name, value.as_str())));
        (case, setting, Values::read(case.options, &given).unwrap())
    }

    /// Options that keep a case short; several variants of each.
    fn small(case: &str) -> Option<&'static [(&'static str, &'static str)]> {
        Some(match case {
            "fileio" => {
                &[("files", "2"), ("total-size", "64K"), ("run-time", "0.02"), ("sync-every", "9")]
            }
            "iozone" => {
                &[("file-size", "64K"), ("record-size", "16K"), ("tests", "read,write,stride")]
            }
            "streams" => &[("files", "2"), ("file-size", "64K"), ("block-size", "32K")],
            "record-probe" => &[
                ("streams", "2"),
                ("rate", "1M"),
                ("chunk", "8K"),
                ("run-time", "0.05"),
                ("storm-size", "1M"),
            ],
            "split" => &[
                ("size", "1M"),
                ("outputs", "1,2"),
                ("codecs", "raw,lz4"),
                ("policies", "buffered,direct"),
            ],
            "stripe" => &[
                ("members-in", "memory"),
                ("member-size", "4M"),
                ("requests", "9"),
                ("granules", "auto,4K"),
            ],
            "stride" => &[("record-size", "16K"), ("total-size", "1M"), ("ahead", "0,2")],
            "readahead" => &[
                ("record-size", "16K"),
                ("file-size", "64K"),
                ("windows", "kernel,32K"),
                ("clients", "1,2"),
            ],
            "slices" => &[("total-size", "256K"), ("record-size", "16K"), ("tests", "read,write")],
            "opmix" => &[("clients", "1,2"), ("run-time", "0.05")],
            "walk" => &[("directories", "3"), ("walkers", "nftw,walker"), ("threads-each", "1,2")],
            "catalog" => &[("rows", "3700"), ("writers", "1,2")],
            "quick" => &[("total-size", "4M"), ("run-time", "0.01")],
            "dedup" => &[("seen-memory", "1M")],
            "command" => &[
                ("command", "true {n}"),
                ("command", "sh -c 'exit {m}' {n}"),
                ("command", "-x"),
                ("command-name", "a {n}"),
                ("command-name", "b"),
                ("command-name", "c"),
                ("prepare", "echo {n} {m}"),
                ("prepare", "true"),
                ("prepare", ":"),
                ("setup", "true"),
                ("parameter-scan", "n 1 3"),
                ("parameter-step-size", "2"),
                ("parameter-list", "m 0,1 2"),
                ("reference", "b"),
            ],
            "fs" => &[
                ("file-systems", "ext4"),
                ("candidates", "ext4 -b 1024 mount=noatime"),
                ("modes", "seqwr,rndrd"),
            ],
            _ => return None,
        })
    }

    #[test]
    fn each_variant_of_each_case_is_measured_by_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = vec![dir.path().canonicalize().unwrap()];
        let setting = Setting { dirs: dirs.clone(), device: None, seed: 7 };
        for case in ALL {
            let Some(given) = small(case.name) else { continue };
            let Some(results) = planned(case, &setting, given) else {
                pinstripe_testing::skipped(
                    "each_variant_of_each_case",
                    &format!("no {} here", case.name),
                );
                continue;
            };
            let words = again(&results).unwrap_or_else(|| panic!("{}", case.name));
            let (by, all, values) = read(&words);
            let specs = (by.plan)(&all, &values).unwrap().variants();
            let names =
                |specs: Vec<VariantSpec>| specs.into_iter().map(|it| it.name).collect::<Vec<_>>();
            let wanted: Vec<String> = results.variants.iter().map(|it| it.name.clone()).collect();
            assert_eq!((names(specs), all.seed), (wanted, results.seed), "{words:?}");
            for variant in &results.variants {
                let words = alone(&results, variant)
                    .unwrap_or_else(|| panic!("{}: {}", case.name, variant.name));
                let (by, setting, values) = read(&words);
                let specs = (by.plan)(&setting, &values).unwrap().variants();
                let what = format!("{} {}: {words:?}", case.name, variant.name);
                match case.name {
                    // The same measurement by the options of another case.
                    "quick" => assert_eq!(specs.len(), 1, "{what}"),
                    "slices" => assert_eq!(specs.len(), 2, "{what}"),
                    "catalog" if variant.name == "view" => assert_eq!(specs.len(), 2, "{what}"),
                    _ => assert_eq!(specs.len(), 1, "{what}"),
                }
                // A name may say more if there are others; a way is a name for others.
                let told = |all: &[Parameter]| -> Vec<Parameter> {
                    all.iter().filter(|it| it.name != "way").cloned().collect()
                };
                let is_it = |it: &VariantSpec| {
                    (told(&it.parameters), &it.metric)
                        == (told(&variant.parameters), &variant.metric)
                };
                assert!(case.name == "quick" || specs.iter().any(is_it), "{what}");
                let needs_none = ["stripe", "dedup"].contains(&case.name);
                assert!(needs_none || setting.dirs == dirs, "{what}");
            }
        }
    }

    #[test]
    fn a_value_of_a_knob_is_measured_alone() {
        let setting = Setting { seed: 7, ..Setting::default() };
        let given = [&small("stripe").unwrap()[..3], &[("knob", "chunk=64K,128K")]].concat();
        let results = planned(find("stripe").unwrap(), &setting, &given).unwrap();
        let words = alone(&results, &results.variants[1]).unwrap();
        let (by, setting, values) = read(&words);
        let specs = (by.plan)(&setting, &values).unwrap().variants();
        assert_eq!(specs.len(), 1, "{words:?}");
        assert_eq!(specs[0].parameters, results.variants[1].parameters);
    }

    #[test]
    fn a_device_is_named_and_its_serial_number_is_not() {
        let setting = Setting { device: Some("/dev/none".into()), ..Setting::default() };
        let given = [("modes", "rndrd,rndwr"), ("total-size", "1M"), ("block-size", "4K")];
        let mut results = planned(find("fileio").unwrap(), &setting, &given).unwrap();
        let typed = "pinstripe lab run fileio --device /dev/none --serial S1 --runs 5";
        results.command = typed.split(' ').map(str::to_owned).collect();
        let line = command_line(&again(&results).unwrap());
        let wanted = "pinstripe lab run fileio --device /dev/none --modes rndrd,rndwr --total-size 1M \
                      --block-size 4K --runs 5 --seed 0";
        assert_eq!(line, wanted);
        let line = command_line(&alone(&results, &results.variants[1]).unwrap());
        assert_eq!(line, wanted.replace("rndrd,rndwr", "rndwr"));
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        assert_eq!(quoted("--dir"), "--dir");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_was_typed_of_how_long_and_how_often_is_kept() {
        let typed = "pinstripe lab run fileio --runs 9 --out r.json --time=3 --serial X --dir .";
        let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
        assert_eq!(super::typed(&words, &EFFORT), ["--runs", "9", "--time=3"]);
    }

    #[test]
    fn noise_that_was_accepted_is_accepted_again() {
        let setting = Setting { dirs: vec![std::env::temp_dir()], ..Setting::default() };
        let mut results = planned(find("walk").unwrap(), &setting, &[]).unwrap();
        let line = |results: &Results| command_line(&again(results).unwrap());
        assert!(!line(&results).contains("--accept-noise"), "{}", line(&results));
        results.command = ["pinstripe", "lab", "--accept-noise"].map(str::to_owned).to_vec();
        assert!(line(&results).ends_with("--accept-noise --seed 0"), "{}", line(&results));
        // Accepted by the verb that shows the results, not by the one that measured them.
        results.command.clear();
        let mut run = crate::result::tests::results(&[("a", &[1.0])]).variants[0].runs[0].clone();
        run.disturbances =
            vec![crate::guard::Disturbance { kind: "steal".to_owned(), what: "much".to_owned() }];
        results.variants[0].runs = vec![run];
        assert!(!line(&results).contains("--accept-noise"));
        results.accept_noise();
        assert!(line(&results).ends_with("--accept-noise --seed 0"), "{}", line(&results));
        let one = alone(&results, &results.variants[0]).unwrap();
        assert!(one.contains(&"--accept-noise".to_owned()), "{one:?}");
    }

    #[test]
    fn several_hosts_measure_again_where_they_did() {
        let mut results = crate::result::tests::of_two_hosts(&[1.0]);
        results.case = "walk".to_owned();
        results.parameters =
            vec![Parameter::new("directories", "3"), Parameter::new("agents", "a,b")];
        let command =
            "pinstripe lab run walk --agents a,b --token-file=t --dir x --out r.json --runs 2";
        results.command = command.split(' ').map(str::to_owned).collect();
        let words = "pinstripe lab run walk --directories 3 --runs 2 --agents a,b --token-file=t --dir x --seed 1";
        assert_eq!(command_line(&again(&results).unwrap()), words);
    }
}
