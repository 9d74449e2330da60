use pinstripe_record::{CommitStages, SlowSync, TakePhase};

use super::terminal::cut;
use super::*;

fn status(streams: usize) -> TakeStatus {
    let stream = |number: usize| StreamStatus {
        name: format!("test-{}", number + 1),
        is_armed: true,
        frames: 48_000,
        ring_percent: 20.0,
        ring_worst_percent: if number == 2 { 85.0 } else { 40.0 },
        overruns: u64::from(number == 3),
        lost_frames: 0,
        missing_frames: 0,
    };
    TakeStatus {
        take: "gig".to_owned(),
        phase: TakePhase::Recording,
        elapsed_seconds: 65.0,
        streams,
        armed_streams: streams,
        pre_roll_seconds: 0.0,
        written_bytes: 4 << 30,
        durable_lag_ms: 1100.0,
        durable_lag_worst_ms: 1400.0,
        ring_percent: 20.0,
        ring_worst_percent: 85.0,
        has_alarm: true,
        overruns: 0,
        lost_frames: 0,
        missing_frames: 0,
        longest_write_ms: 3.0,
        longest_absence_ms: 0.0,
        writing_seconds: 1.0,
        slowest_sync: SlowSync { file: "a".to_owned(), at_seconds: 1.0, ms: 70.0 },
        slowest_commit: CommitStages::default(),
        held_back_worst_ms: 0.0,
        left_seconds: Some(7860.0),
        failed_directories: 0,
        writer_cpu_seconds: 0.0,
        commit_cpu_seconds: 0.0,
        drifts: Vec::new(),
        by_stream: (0..streams).map(stream).collect(),
    }
}

fn drawn(view: &mut ScreenState, status: &TakeStatus, width: u16, height: u16) -> Vec<String> {
    let lines = view.draw((width, height), status);
    let text = |line| cut(line, width.into()).iter().map(|it| it.content().as_str()).collect();
    lines.iter().take(height.into()).map(text).collect()
}

fn levels(count: usize, peak: f64) -> Vec<StreamLevel> {
    vec![StreamLevel { peak, clips: 0 }; count]
}

#[test]
fn a_few_streams_show_name_level_rings_and_flags() {
    let mut view = ScreenState::default();
    let mut levels = levels(4, 0.5);
    levels[1] = StreamLevel { peak: 0.97, clips: 7 };
    view.levels(&levels, Instant::now());
    let lines = drawn(&mut view, &status(4), 80, 24);
    assert_eq!(lines[0].trim_end(), " REC  0:01:05  4 streams  4.0 GiB  left 2:11:00  gig");
    assert!(lines[1].starts_with("A RING WAS OVER 80 % FULL  ring 20 % (worst 85 %: test-3)"));
    assert!(
        lines[2]
            .starts_with("durable lag 1.1 s (worst 1.4)  longest write 3 ms  slowest sync 70 ms")
    );
    assert_eq!(
        lines[3].trim_end(),
        "test-1 ████▌  -6▂▄  test-2 █████   0▂▄C test-3 ████▌  -6▂▇  test-4 ████▌  -6▂▄!"
    );
    assert_eq!(
        lines[23].trim_end(),
        "streams 1 to 4 of 4   arrows, space: others   m: mark   s: split   q: stop"
    );
}

#[test]
fn many_streams_are_read_at_80_by_24_and_all_of_them_by_scrolling() {
    let mut view = ScreenState::default();
    view.levels(&levels(256, 0.25), Instant::now());
    let status = status(256);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..6 {
        let lines = drawn(&mut view, &status, 80, 24);
        for line in &lines[HEAD..23] {
            let names =
                line.split_whitespace().filter(|it| it.contains("est-") || it.starts_with("st-"));
            seen.extend(names.map(|it| it.rsplit('-').next().unwrap().to_owned()));
        }
        view.key(KeyCode::PageDown.into());
    }
    assert_eq!(seen.len(), 256, "{seen:?}");
    assert!(drawn(&mut view, &status, 80, 24)[23].starts_with("streams 177 to 256 of 256"));
    view.key(KeyCode::Home.into());
    assert!(drawn(&mut view, &status, 80, 24)[23].starts_with("streams 1 to 80 of 256"));
    // A window that has no room for anything is no reason to fail.
    for (width, height) in [(1, 1), (10, 3), (300, 100)] {
        drawn(&mut view, &status, width, height);
    }
}

#[test]
fn names_are_whole_where_there_is_room_for_them() {
    let mut view = ScreenState::default();
    view.levels(&levels(12, 0.5), Instant::now());
    let mut status = status(12);
    for stream in &mut status.by_stream {
        stream.name = format!("system-capture_{}", stream.name);
    }
    let lines = drawn(&mut view, &status, 80, 24);
    let whole = |lines: &[String]| {
        let all = lines.join("\n");
        status.by_stream.iter().filter(|it| all.contains(&format!("{} ", it.name))).count()
    };
    assert_eq!(whole(&lines), 12, "{lines:#?}");
    // Seeing all streams comes first.
    let lines = drawn(&mut view, &status, 80, 8);
    assert_eq!((whole(&lines), lines[3].matches("test-").count()), (0, 3), "{lines:#?}");
}

#[test]
fn a_peak_is_held_for_two_seconds() {
    let (mut view, began) = (ScreenState::default(), Instant::now());
    view.levels(&levels(1, 1.0), began);
    view.levels(&levels(1, 0.01), began + Duration::from_millis(1900));
    assert_eq!(view.shown[0].held, 0.0);
    assert_eq!(meter(&view.shown[0]), "█▌··│");
    view.levels(&levels(1, 0.01), began + Duration::from_millis(2100));
    assert_eq!(view.shown[0].held, -40.0);
    // Of a stream that is written seldom nothing may have come since the last look.
    view.levels(&levels(1, 0.0), began + Duration::from_millis(2200));
    assert_eq!(view.shown[0].level, Some(-40.0));
    view.levels(&levels(1, 0.0), began + Duration::from_millis(3700));
    assert_eq!(view.shown[0].level, None);
}

#[test]
fn q_and_an_interrupt_stop_and_other_keys_do_not() {
    let mut view = ScreenState::default();
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for key in [KeyCode::Char('q').into(), control] {
        assert_eq!(view.key(key), Some(TakeOrder::Stop));
    }
    assert_eq!(view.key(KeyCode::Char('r').into()), Some(TakeOrder::Start));
    assert_eq!(view.key(KeyCode::Char('m').into()), Some(TakeOrder::Mark(String::new())));
    assert_eq!(view.key(KeyCode::Char('s').into()), Some(TakeOrder::Split));
    for key in [KeyCode::Char('c'), KeyCode::Up, KeyCode::Enter] {
        assert_eq!(view.key(key.into()), None);
    }
}

#[test]
fn the_phase_of_the_take_and_streams_that_are_not_armed_are_seen() {
    let mut view = ScreenState::default();
    view.levels(&levels(3, 0.5), Instant::now());
    let mut status = status(3);
    status.by_stream[1].is_armed = false;
    (status.armed_streams, status.phase, status.pre_roll_seconds) = (2, TakePhase::Armed, 10.0);
    let lines = drawn(&mut view, &status, 80, 24);
    assert!(lines[0].starts_with(" ARMED 10 s of pre-roll  0:01:05  2 of 3 streams"));
    assert!(lines[3].contains("test-2 ████▌  -6▂▄- "), "{}", lines[3]);
    assert!(lines[23].trim_end().ends_with("r: record   q: end"), "{}", lines[23]);
    view.told = Some(("no stream is armed".to_owned(), Instant::now()));
    assert_eq!(drawn(&mut view, &status, 80, 24)[23].trim_end(), "no stream is armed");
    status.phase = TakePhase::Stopping;
    assert!(drawn(&mut view, &status, 80, 24)[0].starts_with(" STOPPING  0:01:05"));
}
