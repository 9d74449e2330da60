//! Addresses and networks of remote controls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The port that Ardour uses for remote control.
const PORT: u16 = 3819;

/// An address, or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    address: IpAddr,
    /// The number of leading bits that are compared.
    bits: u8,
}

impl Sender {
    /// Whether an address is this sender's, or in this network.
    pub fn has(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                (u32::from(a) ^ u32::from(b)) & mask == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                (u128::from(a) ^ u128::from(b)) & mask == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Sender {
    type Err = String;

    /// `192.168.1.7`, `10.0.0.0/24`, `fd00::/64`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "write an address or a network, for example 192.168.1.7 or 10.0.0.0/24".to_owned();
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), str::parse).map_err(|_| wrong())?;
        if bits > all { Err(wrong()) } else { Ok(Sender { address, bits }) }
    }
}

/// Reads the address to listen at: a port such as `3819`, an address, or both. Without an address,
/// the loopback address is used.
///
/// # Errors
/// Fails with a text with the expected forms.
pub fn listening(text: &str) -> Result<SocketAddr, String> {
    let at = |address: IpAddr| SocketAddr::new(address, PORT);
    let found = match (text.parse::<u16>(), text.parse::<IpAddr>()) {
        (Ok(port), _) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        (_, Ok(address)) => Ok(at(address)),
        _ if text == "localhost" => Ok(at(Ipv4Addr::LOCALHOST.into())),
        _ => text.parse(),
    };
    found.map_err(|_| "write a port or an address, for example 3819 or 0.0.0.0:3819".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        let has = |network: &str, address: &str| {
            network.parse::<Sender>().unwrap().has(address.parse().unwrap())
        };
        assert!(has("10.1.2.0/24", "10.1.2.255") && !has("10.1.2.0/24", "10.1.3.0"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.2"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe00::1"));
        assert!(has("::/0", "2001:db8::1"));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/"] {
            assert!(bad.parse::<Sender>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_but_loopback_is_listened_at_unless_it_is_named() {
        assert_eq!(listening("9000").unwrap().to_string(), "127.0.0.1:9000");
        assert_eq!(listening("0.0.0.0:9000").unwrap().to_string(), "0.0.0.0:9000");
        assert_eq!(listening("127.0.0.1").unwrap().to_string(), "127.0.0.1:3819");
        assert_eq!(listening("[::1]:7").unwrap().to_string(), "[::1]:7");
        for bad in ["", "host:1", "99999", "1.2.3.4:99999"] {
            assert!(listening(bad).is_err(), "{bad}");
        }
    }
}
