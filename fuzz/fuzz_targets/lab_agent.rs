//! What a lab agent and its coordinator read from each other: greetings, lengths, frames, messages. Nothing
//! of it panics, nothing is opened that the other end has not sealed, and what is understood is said again
//! in the same way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_lab::{
    ConnectionEnd, FRAME_BYTES, FrameOpener, GREETING_BYTES, Greeting, LENGTH_BYTES, MAC_BYTES,
    SessionKeys, Token, decode_answer, decode_ask, encode_message,
};

fuzz_target!(|input: (&[u8], Vec<u8>)| {
    let (said, changes) = input;
    if let Some((bytes, _)) = said.split_first_chunk::<GREETING_BYTES>()
        && let Ok(greeting) = Greeting::decode(bytes)
    {
        assert_eq!(greeting.encode(), *bytes);
    }
    if let Some((length, _)) = said.split_first_chunk::<LENGTH_BYTES>() {
        let promised = u32::from_le_bytes(*length) as usize;
        assert_eq!(
            FrameOpener::length(*length).ok(),
            (promised <= FRAME_BYTES).then_some(promised)
        );
    }
    if let Ok(ask) = decode_ask(said) {
        let again = encode_message(&ask).unwrap();
        assert_eq!(encode_message(&decode_ask(&again).unwrap()).unwrap(), again);
    }
    if let Ok(answer) = decode_answer(said) {
        let again = encode_message(&answer).unwrap();
        assert!(decode_answer(&again).is_ok());
    }
    sealed(said, &changes);
});

/// A frame is opened as it was sealed, and with any change of a byte not at all.
fn sealed(said: &[u8], changes: &[u8]) {
    let token = Token::of(&[b't'; 32]).unwrap();
    let greeting = |nonce| Greeting::new([nonce; 32]);
    let handshake = SessionKeys::new(&token, &greeting(1), &greeting(2));
    let (mut sealer, _) = handshake.keys(ConnectionEnd::Coordinator);
    let (_, mut opener) = handshake.keys(ConnectionEnd::Agent);
    let mut frame = sealer.seal(said).unwrap();
    for (at, change) in changes.iter().enumerate().take(frame.len()) {
        frame[at] ^= change;
    }
    let is_changed = changes.iter().take(frame.len()).any(|it| *it != 0);
    let (head, rest) = frame.split_first_chunk::<LENGTH_BYTES>().unwrap();
    let length = FrameOpener::length(*head).unwrap_or(usize::MAX);
    let Some((payload, mac)) = rest.split_at_checked(length) else { return };
    let Some((mac, _)) = mac.split_first_chunk::<MAC_BYTES>() else { return };
    assert_eq!(opener.open(payload, mac).is_ok(), !is_changed);
    assert!(opener.open(payload, mac).is_err(), "a frame is opened once");
}
