//! Parts of one run in the place of another's, with all checksums right: the work of an attacker
//! who can write to the members of a store and has no key.

use super::*;
use pinstripe_stripe::SetReader;

impl Site {
    fn logical(&self, set: SetId) -> (Vec<u8>, Range<u64>) {
        let (name, store) = (ExtentName::index(set), self.store.config.store);
        let reader = SetReader::open(&self.store.members(), name, store, set).unwrap();
        let mut bytes = Vec::new();
        reader.read_verified(0..reader.logical_bytes(), &mut bytes).unwrap();
        (bytes, reader.index())
    }

    /// Writes a run anew with other bytes, checksums and all.
    fn put_logical(&self, set: SetId, bytes: &[u8], index: Range<u64>) {
        self.remove(ExtentName::index(set));
        self.write(ExtentName::index(set), SetKind::IndexRun, |writer, extents| {
            writer.append(bytes, extents).unwrap();
            index
        });
    }
}

#[test]
fn pages_of_another_run_are_not_believed() {
    let (site, monitor) = (Site::new(), Monitor::default());
    // Two runs of one page each that begin with the same chunk, so that nothing else tells them
    // apart: the one with the least id.
    let least = (0..200).min_by_key(|n| id(*n)).unwrap();
    let others: Vec<u32> = (0..200).filter(|n| *n != least).collect();
    let pack = |set: SetId, chunks: &[u32]| {
        let mut chunks = chunks.to_vec();
        chunks.insert(0, least);
        site.pack_of(set, &chunks)
    };
    let (mine, theirs) = (&others[..99], &others[99..198]);
    let (own, stranger) = (pack(set(1), mine), pack(set(2), theirs));
    let (victim, source) =
        (site.run(std::slice::from_ref(&own)), site.run(std::slice::from_ref(&stranger)));
    let ((mut bytes, index), (from, _)) = (site.logical(victim), site.logical(source));
    // Pages, fences and filter of the other run; tables and head of this one.
    let end = bytes.len() - tail_bytes(&site, victim);
    bytes[..end].copy_from_slice(&from[..end]);
    site.put_logical(victim, &bytes, index);
    // The pack of the other run is gone: a row that is trusted names a chunk that is not there.
    site.remove(ExtentName::index(source));
    site.remove(ExtentName::pack(set(2)));
    let found = site.index(&monitor);
    for chunk in theirs {
        assert!(found.find(&id(*chunk)).unwrap().is_none(), "chunk {chunk}");
        assert!(!found.rely_on(&id(*chunk)).unwrap(), "chunk {chunk}");
    }
    // The chunks of this run are read from its pack.
    assert!(mine.iter().all(|chunk| found.find(&id(*chunk)).unwrap().is_some()));
    assert_eq!(monitor.get(pinstripe_base::monitor::Counter::Warnings), 1);
    assert_eq!(site.index(&monitor).repair().unwrap(), Mended { written: 1, removed: 1 });
}

/// Bytes of the tables and the head of a run.
fn tail_bytes(site: &Site, run: SetId) -> usize {
    let (mut bytes, index) = site.logical(run);
    let end = bytes.len() as u64;
    let head = &mut bytes[index.start as usize..];
    let (body, _) = part::parse(RecordKind::RunPart, head, site.store.opener()).unwrap();
    let head = pinstripe_member::index_run::RunHead::decode(body).unwrap();
    (end - head.tables[0].0) as usize
}
