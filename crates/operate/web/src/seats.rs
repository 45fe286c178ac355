//! Who may be there at once: so many in all, and no more than half of them of one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Whose a connection is: for those of this machine their user, for others where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    User(u32),
    Address(IpAddr),
}

impl Owner {
    /// By address; of IPv6 one network of a host counts as one.
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// How many there are of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<Mutex<HashMap<Owner, usize>>>);

impl Seats {
    /// A seat, given back when it is dropped; none where the owner has so many already.
    pub(crate) fn take(&self, owner: Owner, most: usize) -> Option<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = taken.entry(owner).or_default();
        if *of_one >= most {
            return None;
        }
        *of_one += 1;
        Some(Seat { owner, of: self.clone() })
    }
}

/// A seat.
#[derive(Debug)]
pub(crate) struct Seat {
    owner: Owner,
    of: Seats,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_one) = taken.get_mut(&self.owner) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_takes_no_seat_of_others_and_gives_its_own_back() {
        let (seats, one, other) = (Seats::default(), Owner::User(1000), Owner::User(1001));
        let mut taken: Vec<Seat> = (0..3).map(|_| seats.take(one, 3).unwrap()).collect();
        assert!(seats.take(one, 3).is_none());
        let others = seats.take(other, 3);
        assert!(others.is_some());
        taken.pop();
        taken.push(seats.take(one, 3).unwrap());
        drop((taken, others));
        assert!(seats.0.lock().unwrap().is_empty(), "nothing grows with those who were there once");
    }

    #[test]
    fn a_network_of_a_host_is_one() {
        let at = |text: &str| Owner::address(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
