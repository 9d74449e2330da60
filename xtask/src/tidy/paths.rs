//! Finds the paths of names in a Rust file: what its `use` items and its expressions name.

use std::ops::Range;

use super::source::{closed, find, inline_modules, is_word, skip_blanks, skip_colons, word_at};

/// A path of names in a `use` or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The names of the path; `*` stands for all items of a module.
    pub names: Vec<String>,
    /// The name that the file uses for the path.
    pub alias: String,
    /// Whether a `use` contains the path.
    pub is_use: bool,
    /// Whether the `use` re-exports the path.
    pub is_reexport: bool,
    /// The range of bytes of the path or the `use`.
    pub range: Range<usize>,
}

/// Returns the paths of two or more names in the code of a file, and all paths in its `use` items.
/// Inside an inline module, a `super` that refers to the file's module is left out.
pub fn paths(code: &[u8]) -> Vec<Path> {
    let inline = inline_modules(code);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let word = word_at(code, at);
        if word.is_empty() {
            at += 1;
            continue;
        }
        let after = skip_blanks(code, at + word.len());
        let is_use = word == "use" && code.get(after) != Some(&b'<');
        if !is_use && skip_colons(code, after).is_none() {
            at += word.len();
            continue;
        }
        let mut found = Vec::new();
        let end = path_tree(code, if is_use { after } else { at }, &[], &mut found);
        let depth = inline.iter().filter(|body| body.contains(&at)).count();
        let is_reexport = is_use && is_after_pub(code, at);
        for (names, alias) in found {
            let up = names.iter().take(depth).take_while(|name| *name == "super").count();
            if is_use || names.len() > 1 {
                let names = names[up..].to_vec();
                paths.push(Path { names, alias, is_use, is_reexport, range: at..end });
            }
        }
        at = end;
    }
    paths
}

/// Adds the paths that begin here after the names `before`, each with the name that the file uses
/// for it. Returns the end.
fn path_tree(
    code: &[u8],
    start: usize,
    before: &[String],
    paths: &mut Vec<(Vec<String>, String)>,
) -> usize {
    if code.get(start) == Some(&b'{') {
        let end = closed(code, start);
        let mut at = skip_blanks(code, start + 1);
        while at < end - 1 {
            at = skip_blanks(code, path_tree(code, at, before, paths));
            at = skip_blanks(code, at + usize::from(code[at] == b','));
        }
        return end;
    }
    let name = if code.get(start) == Some(&b'*') { "*".to_owned() } else { word_at(code, start) };
    let end = start + name.len().max(1);
    let names = match name.as_str() {
        "self" if !before.is_empty() => before.to_vec(),
        _ => [before, std::slice::from_ref(&name)].concat(),
    };
    let next = skip_colons(code, end);
    let goes_on = |at: &usize| {
        code.get(*at).is_some_and(|&byte| is_word(byte) || matches!(byte, b'{' | b'*'))
    };
    if let Some(next) = next.filter(goes_on) {
        return path_tree(code, next, &names, paths);
    }
    let renamed = skip_blanks(code, end);
    let (alias, end) = match word_at(code, renamed).as_str() {
        "as" => {
            let alias = word_at(code, skip_blanks(code, renamed + 2));
            let end = find(code, renamed + 2, alias.as_bytes()) + alias.len();
            (alias, end)
        }
        _ => (names.last().cloned().unwrap_or_default(), end),
    };
    paths.push((names, alias));
    end
}

/// Whether `pub` or `pub(..)` comes before the word at this offset.
fn is_after_pub(code: &[u8], at: usize) -> bool {
    let before = code[..at].trim_ascii_end();
    let scope = before.strip_suffix(b")").and_then(|it| it.iter().rposition(|&b| b == b'('));
    scope.map_or(before, |open| before[..open].trim_ascii_end()).ends_with(b"pub")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        paths(text.as_bytes()).into_iter().map(|it| (it.names.join("::"), it.alias)).collect()
    }

    #[test]
    fn groups_and_other_names_are_taken_apart() {
        let text = "use super::{a::{self, B as C}, d::*};\nfn f() -> impl g::H + use<'_> {}";
        let expected =
            [("super::a", "a"), ("super::a::B", "C"), ("super::d::*", "*"), ("g::H", "H")];
        assert_eq!(found(text), expected.map(|(names, alias)| (names.into(), alias.into())));
    }

    #[test]
    fn a_re_export_is_told_from_an_import() {
        let text = "pub use a::A; pub(super) use b::B; pub(in crate::x) use c::C; use d::D;";
        let told: Vec<bool> =
            paths(text.as_bytes()).iter().filter(|it| it.is_use).map(|it| it.is_reexport).collect();
        assert_eq!(told, [true, true, true, false]);
    }

    #[test]
    fn an_inline_module_is_part_of_its_file() {
        let text = "mod deep { fn f() { super::super::a(); super::b::c() } }";
        let names: Vec<String> = found(text).into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["super::a", "b::c"]);
        assert_eq!(found("x.collect::<Vec<_>>()"), []);
    }
}
