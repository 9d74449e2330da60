//! Finds cycles of files: files of one crate that import each other, directly or through others.
//!
//! A file imports the file that declares what it names, in a `use` or in a path. A re-export is
//! followed to the declaration; it is not an import itself, unless the file also uses the name.
//! Imports of a module from its submodules do not count either, because submodules are parts of the
//! module and use its items.
//!
//! Calls of methods are not recognized: `a.b()` names no file.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Path, paths};
use super::source::{whole_words, words};
use super::{Finding, Scanned, ratchet};

/// The most re-exports that are followed from a name to its declaration.
const MOST_REEXPORTS: usize = 8;

/// What a name in a module refers to.
enum Target {
    /// A module with a file of its own.
    Module(Vec<String>),
    /// An item, declared in the file of this module.
    Item(Vec<String>),
}

/// The names and items of one file.
struct Module<'a> {
    file: &'a Scanned,
    paths: Vec<Path>,
    /// The paths that `use` items name, by the names that the file uses for them.
    used: BTreeMap<String, Vec<String>>,
    /// The modules whose items a `use` imports with `*`.
    globs: Vec<Vec<String>>,
    /// The names of the items that the file declares.
    declared: BTreeSet<String>,
}

impl<'a> Module<'a> {
    fn of(file: &'a Scanned, paths: Vec<Path>, declared: BTreeSet<String>) -> Self {
        let (mut used, mut globs) = (BTreeMap::new(), Vec::new());
        for path in paths.iter().filter(|path| path.is_use) {
            match path.names.split_last() {
                Some((last, module)) if last == "*" => globs.push(module.to_vec()),
                _ => _ = used.entry(path.alias.clone()).or_insert_with(|| path.names.clone()),
            }
        }
        Module { file, paths, used, globs, declared }
    }
}

/// The files of one crate by their modules.
type Modules<'a> = BTreeMap<Vec<String>, Module<'a>>;

/// The imports of each file, by path.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// Limits the number of cycles by a ratchet at `most`, and refuses a cycle of more than `largest`
/// files.
pub fn check(scanned: &[Scanned], most: usize, largest: usize) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for file in scanned {
        if let Some((folder, inner)) = file.path.split_once("/src/") {
            let code = &file.source.product;
            let module = Module::of(file, paths(code), declared(code));
            crates.entry(folder).or_default().insert(module_of(inner), module);
        }
    }
    let cycles: Vec<Vec<&str>> =
        crates.values().flat_map(|modules| cycles(&imports(modules))).collect();
    let name = |cycle: &Vec<&str>| cycle.join(" ");
    let too_large = cycles.iter().filter(|cycle| cycle.len() > largest).map(|cycle| {
        let what = format!("{} files import each other, more than {largest}: ", cycle.len());
        Finding::new(cycle[0], 0, what + &name(cycle))
    });
    let mut findings: Vec<Finding> = too_large.collect();
    findings.extend(ratchet(cycles.len(), most, "FILE_CYCLES", |found| {
        let all: Vec<String> = cycles.iter().map(name).collect();
        let what = format!("{found} cycles of files that import each other");
        (what, format!("move what two files share to a third: {}", all.join("; ")))
    }));
    findings
}

/// Returns the names of the items that a file declares.
fn declared(code: &[u8]) -> BTreeSet<String> {
    let kinds = ["const", "enum", "fn", "static", "struct", "trait", "type", "macro_rules"];
    let code = String::from_utf8_lossy(code);
    let all: Vec<&str> = words(&code).collect();
    let of_items = all.windows(2).filter(|it| kinds.contains(&it[0]));
    of_items.map(|it| it[1].to_owned()).collect()
}

/// Returns the module of a file in `src`.
fn module_of(inner: &str) -> Vec<String> {
    let stem = inner.trim_end_matches(".rs");
    let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
    module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    module
}

/// Returns the imports of all files of a crate.
fn imports<'a>(modules: &Modules<'a>) -> Imports<'a> {
    let mut imports = Imports::new();
    for (own, module) in modules {
        let named = imports.entry(&module.file.path).or_default();
        for path in &module.paths {
            if path.is_reexport && !uses(module, path) {
                continue;
            }
            if let Some(Target::Item(declares)) = resolve(modules, own, &path.names, 0)
                && !declares.starts_with(own)
            {
                named.insert(&modules[&declares].file.path);
            }
        }
    }
    imports
}

/// Whether a file itself uses the name that it exports.
fn uses(module: &Module, path: &Path) -> bool {
    let code = String::from_utf8_lossy(&module.file.source.product);
    let own = |at: usize| !module.paths.iter().any(|it| it.is_use && it.range.contains(&at));
    path.alias != "*" && whole_words(code.as_bytes(), path.alias.as_bytes()).any(own)
}

/// Returns what `names` refers to in the module `from`; `None` if it is not in this crate.
fn resolve(modules: &Modules, from: &[String], names: &[String], depth: usize) -> Option<Target> {
    let mut here = from.to_vec();
    let mut names = names.iter().peekable();
    let mut is_rooted = false;
    while let Some(name) = names.next_if(|it| matches!(it.as_str(), "crate" | "super" | "self")) {
        match name.as_str() {
            "crate" => here.clear(),
            "super" => drop(here.pop()?),
            _ => {}
        }
        is_rooted = true;
    }
    while let Some(name) = names.next() {
        let mut child = here.clone();
        child.push(name.clone());
        if modules.contains_key(&child) {
            (here, is_rooted) = (child, true);
            continue;
        }
        let module = modules.get(&here)?;
        let rest: Vec<String> = names.cloned().collect();
        let known = module.used.get(name);
        if let Some(known) = known.filter(|it| depth < MOST_REEXPORTS && **it != [name.as_str()]) {
            let way = [known.as_slice(), &rest].concat();
            return resolve(modules, &here, &way, depth + 1);
        }
        return is_rooted.then(|| Target::Item(declaring(modules, here, name, depth)));
    }
    is_rooted.then_some(Target::Module(here))
}

/// Returns the module that declares `name`, which `here` declares itself or imports by a `use` with
/// `*`.
fn declaring(modules: &Modules, here: Vec<String>, name: &str, depth: usize) -> Vec<String> {
    let declares = |module: &Module| module.declared.contains(name);
    if depth >= MOST_REEXPORTS || declares(&modules[&here]) {
        return here;
    }
    for module in &modules[&here].globs {
        if let Some(Target::Module(below)) = resolve(modules, &here, module, depth + 1)
            && modules.get(&below).is_some_and(declares)
        {
            return below;
        }
    }
    here
}

/// Returns the sets of files that all reach each other.
fn cycles<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (*file, reached(imports, file))).collect();
    let mut found: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (file, all) in &reached {
        let cycle: Vec<&str> =
            all.iter().copied().filter(|other| reached[other].contains(file)).collect();
        if cycle.len() > 1 {
            found.insert(cycle);
        }
    }
    found.into_iter().collect()
}

/// Returns all files that a file imports, directly or through others.
fn reached<'a>(imports: &Imports<'a>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&str> = imports[file].iter().copied().collect();
    while let Some(next) = waiting.pop() {
        if reached.insert(next) {
            waiting.extend(&imports[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::super::tests::{file, lines};
    use super::*;

    fn found(files: &[(&str, &str)], most: usize, largest: usize) -> Vec<String> {
        let named =
            |(path, text): &(&str, &str)| file(&format!("crates/pinstripe/src/{path}"), text);
        let files: Vec<_> = files.iter().map(named).collect();
        lines(check(&scan(&files), most, largest))
    }

    #[test]
    fn files_that_import_each_other_are_a_cycle_however_they_name_each_other() {
        for (a, b) in [
            ("use super::b::B;", "use crate::room::a::A;"),
            ("use super::{b::{self, B as C}};", "fn f() -> super::a::A {}"),
            ("use super::b; fn f() { b::g() }", "use super::A;"),
            ("fn f() { mod deep { use super::super::B; } }", "use crate::room::A;"),
        ] {
            let room = "mod a; mod b; pub use a::A; pub(crate) use b::*;";
            let b = format!("pub struct B; {b}");
            let files = [("room/mod.rs", room), ("room/a.rs", a), ("room/b.rs", &b)];
            let told = found(&files, 0, 4);
            assert_eq!(told.len(), 1, "{a} {b}: {told:?}");
            assert!(told[0].starts_with("error: 1 cycles ") && told[0].contains("a.rs crates/"));
        }
    }

    #[test]
    fn a_parent_that_declares_re_exports_and_calls_its_children_is_in_no_cycle() {
        let room = "mod a; pub use a::A; pub struct Own; fn f() { a::g() }";
        let one_way = [("room/mod.rs", room), ("room/a.rs", "use super::Own;")];
        assert_eq!(found(&one_way, 0, 4), Vec::<String>::new());
        let past_it = [one_way[0], one_way[1], ("lib.rs", "mod room; pub use room::A; struct B;")];
        assert_eq!(found(&past_it, 0, 4), Vec::<String>::new());
    }

    #[test]
    fn names_of_tests_and_of_other_crates_are_no_imports() {
        let a = "use super::b::B; use std::a::A; fn f() { Vec::new() }";
        let b = "use other::a::A; #[cfg(test)] mod tests { use crate::a::A; } // super::a::A";
        assert_eq!(found(&[("a.rs", a), ("b.rs", b)], 0, 4), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_of_many_files_is_refused_and_few_cycles_lower_the_limit() {
        let files = [
            ("a.rs", "use super::b::B;"),
            ("b.rs", "use super::c::C;"),
            ("c.rs", "use super::a::A;"),
        ];
        assert_eq!(found(&files, 1, 3), Vec::<String>::new());
        assert!(found(&files, 1, 2)[0].contains("a.rs: 3 files import each other, more than 2: "));
        assert!(found(&files, 2, 3)[0].starts_with("warning: 1 cycles"));
    }
}
