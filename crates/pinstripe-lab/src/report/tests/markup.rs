//! A small reader of HTML that takes only what is well formed.

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];

/// Names of elements in the order in which they begin.
///
/// # Panics
/// On a tag that is not closed or closes another, on a bare `<` or `&` in text, on an attribute
/// without quotes or given twice.
pub fn elements(page: &str) -> Vec<String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page says what it is");
    let (mut all, mut open) = (Vec::new(), Vec::<String>::new());
    while let Some(at) = rest.find('<') {
        check_text(&rest[..at]);
        let end = end_of_tag(&rest[at..]) + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "what ends is what was open last");
            continue;
        }
        let name = tag.split(' ').next().unwrap_or_default().to_owned();
        check_attributes(&tag[name.len()..]);
        all.push(name.clone());
        if name == "style" || name == "script" {
            let close = format!("</{name}>");
            rest = rest.split_once(close.as_str()).expect("what is not read as HTML has an end").1;
        } else if !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    check_text(rest);
    assert!(open.is_empty(), "not closed: {open:?}");
    all
}

/// The end of a tag: not within quotes.
fn end_of_tag(text: &str) -> usize {
    let mut is_quoted = false;
    let at = text.char_indices().find(|(_, it)| {
        is_quoted ^= *it == '"';
        *it == '>' && !is_quoted
    });
    at.expect("a tag ends").0
}

fn check_text(text: &str) {
    assert!(!text.contains('>'), "a bare '>' in {text:?}");
    for (at, _) in text.match_indices('&') {
        let is_named =
            ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|it| text[at..].starts_with(it));
        assert!(is_named, "a bare '&' in {text:?}");
    }
}

fn check_attributes(text: &str) {
    let mut names = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("attributes have values in quotes");
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '-';
        assert!(!name.is_empty() && name.chars().all(is_name), "{name:?} is no name");
        assert!(!names.contains(&name), "{name} is given twice");
        names.push(name);
        let (value, more) = value.split_once('"').expect("a value ends");
        assert!(!value.contains('<'), "{value:?}");
        check_text(value);
        rest = more.trim_start();
    }
}
