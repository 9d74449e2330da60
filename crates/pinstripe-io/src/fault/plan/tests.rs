use super::text::MAX_ERROR;
use super::*;
use proptest::prelude::*;

#[test]
fn plans_are_read_as_people_write_them() {
    let plan: Plan = "op=append,member=2,after=10,error=EIO; op=read, flip=1, after=3;\
                      op=append,rate=50M;delay=5ms;room=label,op=put,lost=yes,times=1"
        .parse()
        .unwrap();
    assert_eq!(
        plan.to_string(),
        "op=append,member=2,after=10,error=EIO;op=read,after=3,flip=1;\
         op=append,rate=52428800;op=any,delay=5000us;op=put,room=label,times=1,lost=yes"
    );
    assert_eq!(plan.for_member(2).faults.len(), 5);
    assert_eq!(plan.for_member(1).faults, plan.faults[1..]);
    assert_eq!("".parse::<Plan>().unwrap(), Plan::default());
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (text, reason) in [
        ("op=append", "has no effect"),
        ("op=wipe,error=EIO", "'wipe' is not a known operation"),
        ("error=EWHAT", "'EWHAT' is not a known error"),
        ("error=0", "'0' is not a known error"),
        ("op=append error=EIO", "is not a known operation"),
        ("lost", "does not have the form key=value"),
        ("colour=red", "the key 'colour'"),
        ("error=EIO,flip=1", "two effects"),
        ("op=read,op=append,flip=1", "has op twice"),
        ("op=read,torn=1", "never occur for the operation read"),
        ("op=append,short=1", "never occur for the operation append"),
        ("op=len,flip=1", "never occur for the operation len"),
        ("op=sync,room=packs,error=EIO", "never occur for the operation sync"),
        ("op=write,room=packs,error=EIO", "never occur for the operation write"),
        ("op=discard,lost=yes", "never occur for the operation discard"),
        ("rate=0", "never end"),
        ("rate=fast", "not a size"),
        ("delay=5", "not a delay"),
        ("delay=ms", "not a delay"),
        ("chance=2,error=EIO", "not a probability"),
        ("chance=NaN,error=EIO", "not a probability"),
        ("member=-1,error=EIO", "not a number"),
        ("after=99999999999999999999,error=EIO", "not a number"),
        ("flip=1.5", "not a number"),
    ] {
        let error = text.parse::<Plan>().unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{text}");
        assert!(error.to_string().contains(reason), "{text}: {error}");
        assert!(error.advice_text().is_some(), "{text}");
    }
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let effect = prop_oneof![
        (1..=MAX_ERROR).prop_map(Effect::Error),
        (0..10_000_000_u64).prop_map(|us| Effect::Delay(Duration::from_micros(us))),
        (1..1_u64 << 40).prop_map(Effect::Rate),
        (0..1_u64 << 40).prop_map(Effect::Torn),
        Just(Effect::Lost),
        any::<u32>().prop_map(Effect::Flip),
        (0..1_u64 << 40).prop_map(Effect::Short),
    ];
    let operation = proptest::option::of((0..12_usize).prop_map(|at| Operation::ALL[at].0));
    let target = proptest::option::of((0..5_usize).prop_map(|at| Target::ALL[at].0));
    let counts = (any::<Option<u32>>(), any::<u64>(), any::<Option<u64>>(), any::<u64>());
    (effect, operation, target, counts, 0.0..=1.0_f64).prop_map(
        |(effect, operation, target, (member, after_calls, times, seed), chance)| Fault {
            operation,
            member,
            target,
            after_calls,
            times,
            chance,
            seed,
            effect,
        },
    )
}

proptest! {
    #[test]
    fn the_text_form_gives_the_same_plan_back(faults in prop::collection::vec(any_fault(), 0..4)) {
        let faults = faults.into_iter().filter(|fault| fault.clone().check().is_ok()).collect();
        let plan = Plan { faults };
        prop_assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-z]{0,6}[=,;]?.{0,20}") {
        let _ = text.parse::<Plan>();
    }
}
