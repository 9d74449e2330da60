//! The rules of the seam, and the probe.

use pinstripe_base::error::Kind;
use pinstripe_member::{ExtentName, Member, RemoteMembers, Replace, check_conformance};
use pinstripe_testing::{BUCKET, KEY_ID, KEY_SECRET};

use crate::support::Site;

#[test]
fn keeps_the_rules_of_the_seam() {
    let Some(site) = Site::new("keeps_the_rules_of_the_seam") else { return };
    check_conformance(&|| Box::new(site.open(&site.fresh_place()).unwrap()));
}

#[test]
fn a_sound_endpoint_passes_the_probe_and_keeps_nothing_of_it() {
    let Some(site) = Site::new("a_sound_endpoint_passes_the_probe") else { return };
    let place = site.fresh_place();
    let report = site.buckets.probe(&place).unwrap();
    assert_eq!(report.missing(), None, "{report:?}");
    assert_eq!(report.abilities[0].seen, "30 of 30 races had one successful writer");
    site.buckets.create(&place).unwrap();
}

#[test]
fn a_prefix_that_is_not_empty_is_refused() {
    let Some(site) = Site::new("a_prefix_that_is_not_empty_is_refused") else { return };
    let place = site.fresh_place();
    let file = site.server.file("p0/notes");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, "mine").unwrap();
    let error = site.buckets.create(&place).err().unwrap();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("p0/notes"), "{error}");
}

fn pattern(seed: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed as u8).collect()
}

fn write(member: &dyn Member, name: ExtentName, bytes: &[u8]) {
    let mut writer = member.create(name, Replace::Allowed).unwrap();
    bytes.chunks(1 << 20).for_each(|part| writer.append(part).unwrap());
    writer.seal().unwrap();
}

#[test]
fn readers_from_front_to_back_take_few_requests() {
    let Some(site) = Site::new("readers_from_front_to_back_take_few_requests") else { return };
    let member = site.member();
    let name = ExtentName::pack(pinstripe_base::id::SetId([5; 16]));
    let content = pattern(1, 30 << 20);
    write(&*member, name, &content);
    site.proxy.take_log();
    assert_eq!(member.len(name).unwrap(), content.len() as u64);
    // Four threads take records in turns, as those of a restore do.
    let next = std::sync::atomic::AtomicUsize::new(0);
    const RECORD: usize = 200_000;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst) * RECORD;
                    if at >= content.len() {
                        break;
                    }
                    let mut record = vec![0; RECORD.min(content.len() - at)];
                    member.read_at(name, at as u64, &mut record).unwrap();
                    assert!(record == content[at..at + record.len()], "at {at}");
                }
            });
        }
    });
    let asked = site.proxy.take_log().len();
    assert!(asked <= 8 + 2 + 8, "{asked} requests for 8 blocks");
    // What was fetched ahead of one is not given for another.
    let other = pattern(2, 9 << 20);
    write(&*member, name, &other);
    assert_eq!(member.len(name).unwrap(), other.len() as u64);
    let mut whole = vec![0; other.len()];
    whole.chunks_mut(1 << 20).enumerate().for_each(|(at, part)| {
        member.read_at(name, (at as u64) << 20, part).unwrap();
    });
    assert!(whole == other);
}

#[test]
fn a_part_that_a_plan_names_is_asked_for_alone() {
    let Some(site) = Site::new("a_part_that_a_plan_names_is_asked_for_alone") else { return };
    let member = site.member();
    let name = ExtentName::pack(pinstripe_base::id::SetId([6; 16]));
    let content = pattern(3, 18 << 20);
    write(&*member, name, &content);
    site.proxy.take_log();
    const PART: usize = 6 << 20;
    for at in (0..content.len()).step_by(PART) {
        let part = member.read_span(name, at as u64, PART).unwrap();
        assert!(part == content[at..at + PART], "at {at}");
    }
    let log = site.proxy.take_log();
    assert_eq!(log.len(), 3, "{}", log.join("\n"));
    for (offset, bytes) in [(content.len() as u64 - 1, 2), (u64::MAX, 2), (u64::MAX - 1, 2)] {
        let error = member.read_span(name, offset, bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{offset}: {error}");
    }
    let other = ExtentName::pack(pinstripe_base::id::SetId([7; 16]));
    assert_eq!(member.read_span(other, 0, 1).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(member.read_span(name, 7, 0).unwrap(), Vec::<u8>::new());
}

#[test]
fn extents_that_are_opened_side_by_side_cost_a_request_each() {
    let test = "extents_that_are_opened_side_by_side_cost_a_request_each";
    let Some(site) = Site::new(test) else { return };
    let member = site.member();
    let content = pattern(4, 200_000);
    let names = (0..8).map(|id| ExtentName::pack(pinstripe_base::id::SetId([id; 16])));
    let names: Vec<_> = names.collect();
    names.iter().for_each(|name| write(&*member, *name, &content));
    site.proxy.take_log();
    // So that all of them are on their way at once.
    site.proxy.delay(std::time::Duration::from_millis(50));
    std::thread::scope(|scope| {
        for name in &names {
            let (member, content) = (&member, &content);
            scope.spawn(move || {
                assert_eq!(member.len(*name).unwrap(), content.len() as u64);
                let mut end = [0; 16 << 10];
                let at = content.len() - end.len();
                member.read_at(*name, at as u64, &mut end).unwrap();
                assert!(end == content[at..]);
            });
        }
    });
    let log = site.proxy.take_log();
    assert_eq!(log.len(), names.len(), "{}", log.join("\n"));
}

/// Where versions are turned on later it is asked once whether an object is made once all the same.
#[test]
fn versions_that_came_later_are_looked_at_once() {
    let test = "versions_that_came_later_are_looked_at_once";
    let Some(site) = Site::new(test) else { return };
    let place = site.fresh_place();
    let facts = site.buckets.create(&place).unwrap().facts;
    let member = site.open(&place).unwrap();
    site.buckets.agree(&place, &facts);
    let name = |number| ExtentName::In(pinstripe_member::ExtentKind::Sessions, [number; 16]);
    site.proxy.take_log();
    member.put(name(1), b"a session").unwrap();
    assert_eq!(site.proxy.take_log().len(), 1);
    let Some(()) = turn_on_versions(&site, test) else { return };
    member.put(name(2), b"a session").unwrap();
    let log = site.proxy.take_log();
    let puts = log.iter().filter(|line| line.starts_with("PUT")).count();
    assert_eq!((puts, log.len()), (3, 5), "two puts, what is there, a deletion: {log:?}");
    member.put(name(3), b"a session").unwrap();
    assert_eq!(site.proxy.take_log().len(), 1);
}

/// `None` where there is no curl to do it.
fn turn_on_versions(site: &Site, test: &str) -> Option<()> {
    let enabled = "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
                   <Status>Enabled</Status></VersioningConfiguration>";
    let asked = std::process::Command::new("curl")
        .args(["-s", "-f", "-m", "20", "-X", "PUT", "-d", enabled])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "-u", &format!("{KEY_ID}:{KEY_SECRET}")])
        .args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .arg(format!("http://127.0.0.1:{}/{BUCKET}?versioning=", site.server.port()))
        .output();
    match asked {
        Ok(asked) => {
            assert!(asked.status.success(), "{asked:?}");
            Some(())
        }
        Err(_) => {
            pinstripe_testing::not_installed(test, "curl");
            None
        }
    }
}
