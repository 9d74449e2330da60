//! The page in a real browser, with forty hosts.

use pinstripe_member::session::Work;
use pinstripe_member::{ExtentKind, Member};
use pinstripe_serve::TokenRole;
use pinstripe_testing::Browser;

use crate::roles::{name, session, snapshot};
use crate::setup::{StoreFixture, store};

const HOSTS: u8 = 40;
const SNAPSHOTS: u8 = 240;

/// Each host has six snapshots, and one has a running session.
fn with_hosts(server: &StoreFixture) {
    let members: Vec<_> = (0..HOSTS)
        .map(|number| {
            let (_, host) = server.token(&format!("host-{number:02}"), TokenRole::Append);
            server.member(&host, 0)
        })
        .collect();
    for number in 0..SNAPSHOTS {
        let member = &members[usize::from(number % HOSTS)];
        let (at, object) = session(number, number, Work::Backup);
        member.put(at, &object).unwrap();
        member.put(name(ExtentKind::Snapshots, number), &snapshot()).unwrap();
        if number > 0 {
            member.delete(at).unwrap();
        }
    }
}

/// The elements whose contrast with their background is less than WCAG AA asks of small text.
const FAINT: &str = "(() => {
  const number = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(it => it / 255)
    .map(it => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const back = of => {
    const color = number(getComputedStyle(of).backgroundColor);
    return color.length == 4 && color[3] == 0 && of.parentElement ? back(of.parentElement) : color;
  };
  const faint = [];
  for (const it of document.querySelectorAll('body *')) {
    if (![...it.childNodes].some(node => node.nodeType == 3 && node.data.trim())) continue;
    const pair = [light(number(getComputedStyle(it).color)), light(back(it))].sort((a, b) => b - a);
    if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5) faint.push(it.outerHTML.slice(0, 80));
  }
  return faint.join('; ');
})()";

#[test]
#[ignore = "with --all: it starts Chromium"]
fn the_page_of_forty_hosts_fits_every_screen_and_is_used_by_keyboard() {
    let Some(mut browser) = Browser::start() else {
        return pinstripe_testing::not_installed(
            "the_page_of_forty_hosts_fits_every_screen_and_is_used_by_keyboard",
            "Chromium",
        );
    };
    let server = store();
    with_hosts(&server);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let url = format!("https://{}/", server.address);
    browser.emulate((1400, 1000), "light");
    browser.open_url(&url);
    assert_eq!(browser.evaluate("document.activeElement.id"), "join");
    assert_eq!(browser.evaluate(FAINT), "");
    let join = admin.join_string().reveal();
    browser.evaluate(&format!("document.querySelector('#join').value = '{join}'"));
    browser.evaluate("document.querySelector('form').submit()");
    let shown = "document.readyState === 'complete' && document.querySelectorAll('h2').length > 0";
    while browser.evaluate(shown) != true {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for width in [1400, 400] {
        for scheme in ["light", "dark"] {
            browser.emulate((width, 1000), scheme);
            let what = format!("{width} {scheme}");
            let excess = "document.documentElement.scrollWidth - innerWidth";
            assert_eq!(browser.evaluate(excess), 0, "{what}");
            assert_eq!(browser.evaluate(FAINT), "", "{what}");
            if let Some(dir) = std::env::var_os("PINSTRIPE_SCREENSHOTS") {
                let file = std::path::Path::new(&dir).join(format!("page {what}.png"));
                std::fs::write(file, browser.screenshot()).unwrap();
            }
        }
    }
    let rows = "[...document.querySelectorAll('table')].map(it => it.rows.length - 1)";
    let rows = browser.evaluate(rows);
    assert!(rows.as_array().unwrap().iter().any(|it| *it == HOSTS), "{rows}");
    // Every control has a name and is reached by the keyboard.
    let unnamed = "[...document.querySelectorAll('button, input:not([type=hidden]), a')]
        .filter(it => it.tabIndex < 0 || !(it.ariaLabel || it.textContent || it.labels?.length)).length";
    assert_eq!(browser.evaluate(unnamed), 0);
    let fence = "document.querySelector('form[action=\"/fence\"] button')";
    browser.evaluate(&format!("{fence}.focus()"));
    let outline = format!("{fence}.matches(':focus')");
    assert_eq!(browser.evaluate(&outline), true);
    browser.evaluate(&format!("{fence}.click()"));
    while browser.evaluate(&format!("document.readyState === 'complete' && {fence} === null"))
        != true
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The script shows a new host without a reload.
    browser.evaluate("window.kept = true");
    server.token("new-host", TokenRole::Append);
    while browser.evaluate("document.body.textContent.includes('new-host')") != true {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(browser.evaluate("window.kept"), true);
}
