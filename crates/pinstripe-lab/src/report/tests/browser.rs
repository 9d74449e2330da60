//! Pages as a browser shows and prints them.

use std::sync::LazyLock;

use pinstripe_testing::Browser;

use super::*;

/// Widths at which a page is looked at, in pixels: a screen, and a telephone.
const WIDTHS: [u32; 2] = [1280, 400];
/// What the user prefers, and the background that the page then has.
const SCHEMES: [(&str, &str); 2] = [("dark", "rgb(21, 24, 28)"), ("light", "rgb(255, 255, 255)")];

/// Depths in groups with names as long as such names get.
fn wordy(groups: usize) -> Results {
    let mut results = depths(groups);
    for variant in &mut results.variants {
        let before = "blocks written in order, past the page cache, 4 at a time";
        variant.name = format!("{before}, {}", variant.name);
        variant.group = format!("{before}, {}", variant.group);
    }
    results.judge();
    results
}

/// Pages of every sort, by a name for them: made once for all tests.
static PAGES: LazyLock<[(&str, String); 6]> = LazyLock::new(pages);

fn pages() -> [(&'static str, String); 6] {
    let mut long = results();
    let name =
        "/srv/a-directory-with-a-name/that-goes-on/and-on-without-a-space-in-it/for-quite-a-while";
    long.variants[1].name = name.to_owned();
    long.fingerprint.places[0].path = name.to_owned();
    long.command.push(name.to_owned());
    long.judge();
    [
        ("usual", page(&[results()], None, &[])),
        ("long", page(&[long], None, &[])),
        ("large", page(&[large(8, 20)], None, &[])),
        ("depths and a history", page(&[depths(2)], None, &before(&depths(2)))),
        ("as many variants as quick, and tables", page(&[tables(7, 4)], None, &before(&depths(7)))),
        ("several", page(&[wordy(7), wordy(7), tables(7, 4)], None, &[])),
    ]
}

#[test]
#[ignore = "with --all: it starts Chromium"]
fn a_browser_shows_pages_that_fit_and_are_not_blank() {
    let Some(mut browser) = Browser::start() else {
        return pinstripe_testing::not_installed(
            "a_browser_shows_pages_that_fit_and_are_not_blank",
            "Chromium",
        );
    };
    for (name, page) in &*PAGES {
        let path = browser.write("page.html", page);
        for width in WIDTHS {
            for (scheme, ground) in SCHEMES {
                browser.emulate((width, 3000), scheme);
                browser.open(&path);
                let wide = browser.evaluate("document.documentElement.scrollWidth");
                let found = browser.evaluate("getComputedStyle(document.body).backgroundColor");
                assert_eq!((wide, found), (width.into(), ground.into()), "{name} at {width}");
                // A picture of one colour takes less than a tenth of this.
                let bytes = browser.screenshot().len();
                assert!(bytes > 100_000, "{name} at {width}: a picture of {bytes} bytes");
            }
        }
    }
}

#[test]
#[ignore = "with --all: it starts Chromium"]
fn a_page_is_printed_on_two_sheets() {
    let Some(mut browser) = Browser::start() else {
        return pinstripe_testing::not_installed("a_page_is_printed_on_two_sheets", "Chromium");
    };
    for (name, page) in &*PAGES {
        let path = browser.write("page.html", page);
        browser.open(&path);
        let sheets = browser.pdf();
        let text = String::from_utf8_lossy(&sheets);
        let count = text.matches("/Type /Page\n").count();
        assert!((1..=2).contains(&count), "{name}: {count} sheets");
    }
}
