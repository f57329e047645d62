//! Ranges of IP addresses, as in `10.0.0.0/16`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What the real server says of a text that is no range.
pub(crate) const NO_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpRange {
    address: IpAddr,
    prefix: u32,
}

impl IpRange {
    /// Parses `address/prefix`. The address may be any one of the range.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|prefix| is_number && *prefix <= bits(address))?;
        Some(Self { address, prefix })
    }

    /// The address before the `/`.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        bits(address) == bits(self.address) && Self { address, ..*self }.first() == self.first()
    }

    /// Whether a service may have the address: not the first one, which is the network's, and not the last of IPv4,
    /// which is for broadcasts.
    pub(crate) fn offers(&self, address: IpAddr) -> bool {
        let is_last = match (address, self.first()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => {
                let size = u32::MAX.checked_shr(self.prefix).unwrap_or(0);
                self.prefix < 31 && address.to_bits() == first.to_bits() | size
            }
            _ => false,
        };
        self.contains(address) && address != self.first() && !is_last
    }
}

/// The range with its first address.
impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.prefix)
    }
}

/// The length of an address.
fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_offers_all_but_its_first_and_last_address() {
        let range = IpRange::parse("10.0.1.7/24").unwrap();
        assert_eq!(range.to_string(), "10.0.1.0/24");
        let offers =
            |text: &str| (range.contains(text.parse().unwrap()), range.offers(text.parse().unwrap()));
        assert_eq!(offers("10.0.1.0"), (true, false));
        assert_eq!(offers("10.0.1.1"), (true, true));
        assert_eq!(offers("10.0.1.255"), (true, false));
        assert_eq!(offers("10.0.2.1"), (false, false));
        assert_eq!(offers("::1"), (false, false));
        let all = IpRange::parse("0.0.0.0/0").unwrap();
        assert!(all.contains("255.255.255.255".parse().unwrap()));
        let six = IpRange::parse("2001:db8::/64").unwrap();
        assert!(six.offers("2001:db8::ffff:ffff:ffff:ffff".parse().unwrap()));
        assert!(!six.offers("2001:db8::".parse().unwrap()));
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/+8", "10.0.0.0/"] {
            assert_eq!(IpRange::parse(text), None, "{text}");
        }
    }
}
