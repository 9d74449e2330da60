use super::*;
use crate::device::{MemoryDevice, SharedDevice, conformance};
use pinstripe_base::error::Kind;
use std::sync::Arc;

fn with(plan: &str) -> FaultyDevice<MemoryDevice> {
    FaultyDevice::new(MemoryDevice::new("d"), plan.parse().unwrap())
}

#[test]
fn without_faults_it_is_the_inner_device() {
    conformance::run(&|| Box::new(with("")));
    conformance::run(&|| {
        let shared: SharedDevice = Arc::new(MemoryDevice::new("d"));
        Box::new(FaultyDevice::new(shared, Plan::default()))
    });
    // No check makes a million calls.
    conformance::run(&|| Box::new(with("op=any,after=1000000,error=EIO;chance=0,delay=1s")));
}

#[test]
fn every_call_can_fail() {
    for name in ["read", "write", "len", "set_len", "sync", "discard"] {
        let device = with(&format!("op={name},after=1,error=ENOSPC"));
        let call = || match name {
            "read" => device.read_at(0, &mut [0]),
            "write" => device.write_at(0, b"new"),
            "len" => device.len().map(drop),
            "set_len" => device.set_len(3),
            "sync" => device.sync(),
            _ => device.discard(0..1),
        };
        device.inner().write_at(0, b"old").unwrap();
        call().unwrap();
        let before = device.inner().to_vec();
        let error = call().unwrap_err();
        assert_eq!((error.kind(), error.place()), (Kind::NoSpace, Some(device.place())));
        assert_eq!(device.inner().to_vec(), before, "{name}");
        let (operation, _) = Operation::ALL.into_iter().find(|it| it.1 == name).unwrap();
        let count = device.statistics().counts(operation);
        assert_eq!((count.calls, count.struck), (2, 1), "{name}");
    }
}

#[test]
fn any_strikes_all_calls_of_a_device() {
    let device = with("op=any,error=EIO");
    assert!(device.read_at(0, &mut []).is_err() && device.write_at(0, b"").is_err());
    assert!(device.len().is_err() && device.set_len(0).is_err());
    assert!(device.sync().is_err() && device.discard(0..0).is_err());
}

#[test]
fn a_struck_sync_stays_failed() {
    let device = with("op=sync,after=1,times=1,error=EIO");
    device.sync().unwrap();
    for _ in 0..3 {
        assert_eq!(device.sync().unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    assert_eq!(device.statistics().counts(Operation::Sync).calls, 2);
}

#[test]
fn torn_lost_flipped_and_short() {
    let device = with("op=write,after=1,times=1,torn=2;op=write,after=2,times=1,lost=yes");
    device.write_at(0, b"0123456789").unwrap();
    device.write_at(4, b"torn").unwrap();
    device.write_at(0, b"lost").unwrap();
    assert_eq!(device.inner().to_vec(), b"0123to6789");

    let device = with("op=write,flip=1,seed=3;op=read,after=1,flip=2,seed=5");
    device.write_at(0, &[0; 64]).unwrap();
    let bits = |bytes: &[u8]| bytes.iter().map(|it| it.count_ones()).sum::<u32>();
    assert_eq!(bits(&device.inner().to_vec()), 1);
    let mut found = [0; 64];
    device.read_at(0, &mut found).unwrap();
    assert_eq!(bits(&found), 1);
    device.read_at(0, &mut found).unwrap();
    assert!(found != *device.inner().to_vec());

    let device = with("op=read,short=3");
    device.inner().write_at(0, b"0123456789").unwrap();
    let mut buf = [b'-'; 6];
    assert_eq!(device.read_at(0, &mut buf).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(&buf, b"012---");
}

#[test]
fn slow_devices_get_there() {
    let device = with("delay=1us;rate=1T");
    device.write_at(0, b"x").unwrap();
    device.sync().unwrap();
    assert_eq!(device.inner().to_vec(), b"x");
    assert_eq!(device.statistics().counts(Operation::Write).struck, 1);
}
