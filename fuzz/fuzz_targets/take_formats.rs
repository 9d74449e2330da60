//! What the recorder reads of a take, of a network, and of its command line: any bytes. A manifest that is read is
//! written again as it was; a record of the journal ends within its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_base::checksum::checksum;
use pinstripe_record::{
    Manifest, RtpPacket, RtpWindow, SdpStream, decode_journal, parse_input, read_osc, write_osc,
};

fuzz_target!(|input: (bool, u64, &[u8])| {
    let (framed, number, bytes) = input;
    if let Ok(manifest) = Manifest::decode(bytes) {
        for stream in 0..manifest.streams.len() as u32 {
            let facts = manifest.head_facts(stream, number).expect("a stream of it");
            assert_eq!(facts.head(number >> 8).len() as u64, facts.payload_at());
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = SdpStream::parse(text);
        // A description is read from a file that the text names: none here.
        if !text.contains(".sdp") {
            let _ = parse_input(text);
        }
    }
    for message in read_osc(bytes).unwrap_or_default() {
        let written = write_osc(message.address, &message.values);
        let again = read_osc(&written).expect("what was read can be sent");
        assert_eq!(again[0].address, message.address);
        assert_eq!(again[0].values.len(), message.values.len());
    }
    if let Some(packet) = RtpPacket::parse(bytes) {
        let mut window = RtpWindow::new(6, 100, 48_000);
        for timestamp in [packet.timestamp, packet.source, number as u32] {
            let whole = packet.payload.len() / 6 * 6;
            window.place(timestamp, &packet.payload[..whole], number % 1000, &mut |_| {});
        }
        window.finish(&mut |_| {});
    }
    let mut record = bytes.to_vec();
    if framed && record.len() >= 16 {
        // What a decoder must get past to see the rest: length, number, checksum.
        let length = (record.len() - 16) as u32;
        record[4..8].copy_from_slice(&length.to_le_bytes());
        record[8..16].copy_from_slice(&number.to_le_bytes());
        record.extend(checksum(&record));
    }
    if let Some((_, length)) = decode_journal(&record, number) {
        assert!(length <= record.len());
    }
});
