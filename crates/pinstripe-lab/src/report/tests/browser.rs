//! Pages as a browser shows and prints them: Chromium, without a screen and without a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use pinstripe_testing::skipped;

/// Widths at which a page is looked at, in pixels: a screen, and a telephone.
const WIDTHS: [u32; 2] = [1280, 400];
/// The user's preference as Chromium is told it, and the background that the page then has.
const SCHEMES: [(&str, &str); 2] = [("0", "rgb(21, 24, 28)"), ("1", "rgb(255, 255, 255)")];

/// A browser with a directory of its own.
struct Browser {
    program: &'static str,
    dir: tempfile::TempDir,
}

impl Browser {
    fn find() -> Option<Self> {
        let works = |program: &&str| {
            let mut command = Command::new(program);
            let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)?;
        Some(Browser { program, dir: tempfile::tempdir().unwrap() })
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Opens a file with further options; returns what is printed.
    fn open(&self, options: &[&str], page: &Path) -> String {
        let mut command = Command::new(self.program);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
        command.args([
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--proxy-server=127.0.0.1:9",
        ]);
        command.arg(format!("--user-data-dir={}", self.dir.path().join("profile").display()));
        command.args(options).arg(format!("file://{}", page.display()));
        let output = command.stderr(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{options:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A page around another one of a width, that says how wide its content became, and on which
/// ground.
///
/// A window is never narrower than some hundred pixels; a frame is as narrow as it is told to be.
fn around(page: &str, width: u32) -> String {
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!DOCTYPE html><body style=\"margin:0\"><iframe srcdoc=\"{escaped}\" style=\"border:0\" width=\"{width}\" \
         height=\"3000\"></iframe><script>onload = () => {{ const w = frames[0]; const d = w.document; \
         const wide = d.documentElement.scrollWidth; const ground = w.getComputedStyle(d.body).backgroundColor; \
         document.body.innerHTML = 'found ' + wide + ' on ' + ground + ' end'; }};</script></body>"
    )
}

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
fn a_browser_shows_pages_that_fit_and_are_not_blank() {
    let Some(browser) = Browser::find() else {
        return skipped("a_browser_shows_pages_that_fit_and_are_not_blank", "there is no Chromium");
    };
    for (name, page) in pages() {
        let path = browser.write("page.html", &page);
        for width in WIDTHS {
            let frame = browser.write("frame.html", &around(&page, width));
            for (scheme, ground) in SCHEMES {
                let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
                let found = browser.open(&[&scheme, "--dump-dom"], &frame);
                let wanted = format!("found {width} on {ground} end");
                assert!(found.contains(&wanted), "{name} at {width}: {}", tail(&found));
                let shot = browser.dir.path().join("shot.png");
                let options = [
                    format!("--screenshot={}", shot.display()),
                    format!("--window-size={width},3000"),
                ];
                browser.open(&[&scheme, &options[0], &options[1]], &path);
                // A picture of one colour takes less than a tenth of this.
                let bytes = fs::metadata(&shot).unwrap().len();
                assert!(bytes > 100_000, "{name} at {width}: a picture of {bytes} bytes");
            }
        }
    }
}

fn tail(text: &str) -> &str {
    &text[text.len().saturating_sub(300)..]
}

#[test]
fn a_page_is_printed_on_two_sheets() {
    let Some(browser) = Browser::find() else {
        return skipped("a_page_is_printed_on_two_sheets", "there is no Chromium");
    };
    for (name, page) in pages() {
        let path = browser.write("page.html", &page);
        let sheets = browser.dir.path().join("page.pdf");
        browser.open(
            &["--no-pdf-header-footer", &format!("--print-to-pdf={}", sheets.display())],
            &path,
        );
        let bytes = fs::read(&sheets).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let count = text.matches("/Type /Page\n").count();
        assert!((1..=2).contains(&count), "{name}: {count} sheets");
    }
}
