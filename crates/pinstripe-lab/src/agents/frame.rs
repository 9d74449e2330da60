//! The bytes between a coordinator and an agent: greetings, proofs, and frames with a MAC.
//!
//! ```text
//! coordinator: greeting    magic 8 | version 2 | nonce 32
//! agent:       greeting    the same
//! coordinator: proof 32    of the token, for this pair of greetings
//! agent:       proof 32    for the same, under another name
//! then frames:  length 4 | payload | MAC 32
//! ```
//!
//! Numbers are little-endian. A proof is a keyed hash (BLAKE3) of the end that proves and of both
//! greetings; the key is derived from the token, which is never sent. Each direction has its own
//! key, derived from the token and both greetings. The MAC of a frame is the keyed hash of its
//! number in its direction, its length and its payload.
//!
//! Invariants: the coordinator proves first, so that a peer that only connects learns nothing
//! derived from the token; a frame that was repeated, left out, changed, sent back or taken from
//! another connection has a wrong MAC; a length above [`FRAME_BYTES`] causes no allocation.
//!
//! This module contains no sockets, and does not interpret payloads.

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::wire::Reader;

use super::token::Token;

/// The version of the protocol. The connection fails if the two ends have different versions.
pub(crate) const PROTOCOL: u16 = 1;
/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 42;
/// Bytes of a proof and of a MAC.
pub const MAC_BYTES: usize = 32;
/// The longest payload. The payload of a run with its histograms and samples has some 100 KB.
pub const FRAME_BYTES: usize = 4 << 20;
/// Bytes of the length before a payload.
pub const LENGTH_BYTES: usize = 4;

const MAGIC: &[u8; 8] = b"PSLABAGT";

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The end that connects and decides what is measured.
    Coordinator,
    /// The end that listens and measures.
    Agent,
}

impl ConnectionEnd {
    fn other(self) -> ConnectionEnd {
        match self {
            ConnectionEnd::Coordinator => ConnectionEnd::Agent,
            ConnectionEnd::Agent => ConnectionEnd::Coordinator,
        }
    }

    fn name(self) -> &'static [u8] {
        match self {
            ConnectionEnd::Coordinator => b"coordinator",
            ConnectionEnd::Agent => b"agent",
        }
    }
}

/// The first bytes from either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The version of the protocol.
    pub version: u16,
    /// A nonce: 32 random bytes that no other greeting has.
    pub nonce: [u8; 32],
}

impl Greeting {
    /// Creates a greeting with the version of this program.
    pub fn new(nonce: [u8; 32]) -> Greeting {
        Greeting { version: PROTOCOL, nonce }
    }

    /// Encodes the greeting as it is sent.
    pub fn encode(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Reads a greeting of any version.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if the bytes are not a greeting.
    pub fn decode(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting> {
        let mut reader = Reader::new(bytes, "greeting");
        if reader.array()? != *MAGIC {
            return Err(Error::new(
                Kind::Corrupt,
                "this peer does not use the protocol of lab agents",
            ));
        }
        let version = u16::from_le_bytes(reader.array()?);
        Ok(Greeting { version, nonce: reader.array()? })
    }

    /// Compares the version of the greeting with the version of this program.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if the versions differ.
    pub fn check(&self) -> Result<()> {
        if self.version == PROTOCOL {
            return Ok(());
        }
        let error = Error::new(
            Kind::Unsupported,
            "this peer uses a different version of the protocol of lab agents",
        );
        Err(error
            .expected(PROTOCOL, self.version)
            .advice("use the same version of pinstripe on all machines"))
    }
}

/// The keys that two ends with the same token derive from their greetings.
pub struct SessionKeys {
    key: [u8; 32],
    greetings: [u8; 2 * GREETING_BYTES],
}

impl SessionKeys {
    /// Derives the keys from the greetings of both ends.
    pub fn new(token: &Token, coordinator: &Greeting, agent: &Greeting) -> SessionKeys {
        let mut greetings = [0; 2 * GREETING_BYTES];
        greetings[..GREETING_BYTES].copy_from_slice(&coordinator.encode());
        greetings[GREETING_BYTES..].copy_from_slice(&agent.encode());
        SessionKeys { key: *token.key(), greetings }
    }

    /// The proof that an end knows the token.
    pub fn proof(&self, end: ConnectionEnd) -> [u8; MAC_BYTES] {
        *self.keyed(b"proof", end).as_bytes()
    }

    /// Checks a proof against the token.
    ///
    /// # Errors
    /// [`Kind::WrongKey`] if the proof does not match the token.
    pub fn check(&self, end: ConnectionEnd, proof: &[u8; MAC_BYTES]) -> Result<()> {
        // The comparison takes the same time wherever they differ.
        match self.keyed(b"proof", end) == *proof {
            true => Ok(()),
            false => Err(Error::new(Kind::WrongKey, "this peer does not know the token")
                .advice("the token file must have the same content on all machines")),
        }
    }

    /// Returns the keys of both directions for one end: the key for sending, and the key for
    /// receiving.
    pub fn keys(&self, end: ConnectionEnd) -> (FrameSealer, FrameOpener) {
        let key = |end: ConnectionEnd| *self.keyed(b"frames", end).as_bytes();
        let sealer = FrameSealer { key: key(end), number: 0 };
        (sealer, FrameOpener { key: key(end.other()), number: Some(0) })
    }

    fn keyed(&self, purpose: &[u8], end: ConnectionEnd) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // Fixed lengths after words; no word is a prefix of another.
        hasher.update(purpose).update(b" of the ").update(end.name()).update(&self.greetings);
        hasher.finalize()
    }
}

/// Seals frames of one direction.
pub struct FrameSealer {
    key: [u8; 32],
    number: u64,
}

impl FrameSealer {
    /// Returns the next frame, with this payload.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the payload is too long.
    pub fn seal(&mut self, payload: &[u8]) -> Result<Vec<u8>> {
        if payload.len() > FRAME_BYTES {
            let error = Error::new(Kind::Usage, "a message is too long");
            return Err(
                error.expected(format!("a message of at most {FRAME_BYTES} bytes"), payload.len())
            );
        }
        let length = (payload.len() as u32).to_le_bytes();
        let mac = mac(&self.key, self.number, length, payload);
        self.number += 1;
        Ok([&length[..], payload, mac.as_bytes()].concat())
    }
}

/// Opens frames of one direction, in the order in which they were made.
pub struct FrameOpener {
    key: [u8; 32],
    /// The number of the next frame; `None` after a frame that failed its check.
    number: Option<u64>,
}

impl FrameOpener {
    /// Decodes the length field before a payload.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for a length above [`FRAME_BYTES`].
    pub fn length(bytes: [u8; LENGTH_BYTES]) -> Result<usize> {
        let length = u32::from_le_bytes(bytes) as usize;
        if length > FRAME_BYTES {
            let error = Error::new(Kind::Corrupt, "this peer sent a frame that is too long");
            return Err(error.expected(format!("a message of at most {FRAME_BYTES} bytes"), length));
        }
        Ok(length)
    }

    /// Checks the next frame.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for any other frame; afterwards no further frame can be opened.
    pub fn open(&mut self, payload: &[u8], sent: &[u8; MAC_BYTES]) -> Result<()> {
        let length = (payload.len() as u32).to_le_bytes();
        let number = self.number.take();
        let number = number.filter(|it| mac(&self.key, *it, length, payload) == *sent);
        self.number = number.map(|it| it + 1);
        match number {
            Some(_) => Ok(()),
            None => Err(Error::new(
                Kind::Corrupt,
                "this peer sent a message that was changed, repeated, forged or reordered",
            )),
        }
    }
}

fn mac(key: &[u8; 32], number: u64, length: [u8; LENGTH_BYTES], payload: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes()).update(&length).update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(token: &[u8; 32], nonces: (u8, u8)) -> SessionKeys {
        let greeting = |nonce| Greeting::new([nonce; 32]);
        let token = Token::from_bytes(token).unwrap();
        SessionKeys::new(&token, &greeting(nonces.0), &greeting(nonces.1))
    }

    fn parts(frame: &[u8]) -> (Vec<u8>, [u8; MAC_BYTES]) {
        let length = FrameOpener::length(frame[..4].try_into().unwrap()).unwrap();
        (frame[4..4 + length].to_vec(), frame[4 + length..].try_into().unwrap())
    }

    #[test]
    fn a_greeting_is_read_back_and_nothing_else_is_one() {
        let greeting = Greeting { version: 7, nonce: [9; 32] };
        assert_eq!(Greeting::decode(&greeting.encode()).unwrap(), greeting);
        assert_eq!(greeting.check().unwrap_err().kind(), Kind::Unsupported);
        Greeting::new([0; 32]).check().unwrap();
        assert_eq!(
            Greeting::decode(b"SSH-2.0-OpenSSH_9.6                       ").unwrap_err().kind(),
            Kind::Corrupt
        );
    }

    #[test]
    fn a_proof_holds_for_one_end_one_token_and_one_pair_of_greetings() {
        let (one, other) = ([b'a'; 32], [b'b'; 32]);
        let known = handshake(&one, (1, 2));
        let proof = known.proof(ConnectionEnd::Coordinator);
        known.check(ConnectionEnd::Coordinator, &proof).unwrap();
        for (what, found) in [
            ("sent back by the agent", known.check(ConnectionEnd::Agent, &proof)),
            ("another token", handshake(&other, (1, 2)).check(ConnectionEnd::Coordinator, &proof)),
            (
                "another coordinator",
                handshake(&one, (3, 2)).check(ConnectionEnd::Coordinator, &proof),
            ),
            ("another agent", handshake(&one, (1, 3)).check(ConnectionEnd::Coordinator, &proof)),
            ("changed", known.check(ConnectionEnd::Coordinator, &proof.map(|it| it ^ 1))),
        ] {
            assert_eq!(found.unwrap_err().kind(), Kind::WrongKey, "{what}");
        }
    }

    #[test]
    fn frames_are_opened_once_in_order_and_by_the_other_end_alone() {
        let known = handshake(&[b'a'; 32], (1, 2));
        let (mut ours, mut back) = known.keys(ConnectionEnd::Coordinator);
        let (_, mut theirs) = known.keys(ConnectionEnd::Agent);
        let frames: Vec<_> =
            ["one", "two", "three"].map(|it| ours.seal(it.as_bytes()).unwrap()).to_vec();
        let (payload, mac) = parts(&frames[0]);
        assert!(back.open(&payload, &mac).is_err(), "a frame that was sent back");
        theirs.open(&payload, &mac).unwrap();
        assert_eq!(payload, b"one");
        let fresh = || {
            let (_, mut opener) = known.keys(ConnectionEnd::Agent);
            opener.open(b"one", &parts(&frames[0]).1).unwrap();
            opener
        };
        let (two, mac_of_two) = parts(&frames[1]);
        let (three, mac_of_three) = parts(&frames[2]);
        assert!(fresh().open(b"one", &mac).is_err(), "repeated");
        assert!(fresh().open(&three, &mac_of_three).is_err(), "one left out");
        assert!(fresh().open(b"tw0", &mac_of_two).is_err(), "changed");
        assert!(fresh().open(&two[..2], &mac_of_two).is_err(), "cut off");
        let (_, mut elsewhere) = handshake(&[b'a'; 32], (1, 9)).keys(ConnectionEnd::Agent);
        assert!(elsewhere.open(b"one", &mac).is_err(), "of another connection");
        let mut opener = fresh();
        assert!(opener.open(b"tw0", &mac_of_two).is_err());
        assert!(opener.open(&two, &mac_of_two).is_err(), "nothing is opened after a wrong one");
        fresh().open(&two, &mac_of_two).unwrap();
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_read() {
        assert_eq!(FrameOpener::length(5_u32.to_le_bytes()).unwrap(), 5);
        let most = FRAME_BYTES as u32;
        assert_eq!(FrameOpener::length(most.to_le_bytes()).unwrap(), FRAME_BYTES);
        assert_eq!(
            FrameOpener::length((most + 1).to_le_bytes()).unwrap_err().kind(),
            Kind::Corrupt
        );
        assert!(FrameOpener::length([0xff; 4]).is_err());
        let (mut sealer, _) = handshake(&[b'a'; 32], (1, 2)).keys(ConnectionEnd::Agent);
        assert_eq!(sealer.seal(&vec![0; FRAME_BYTES + 1]).unwrap_err().kind(), Kind::Usage);
    }
}
