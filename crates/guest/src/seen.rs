//! What programs in a guest print of its network: `ping` of busybox, `iperf3` with `-f k`.

/// What was measured in a guest, in the order in which it was printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Median round-trip time of each `ping`, s.
    pub pings: Vec<f64>,
    /// What the receiver of each transfer got, bit/s.
    pub tcp: Vec<f64>,
}

/// Reads what programs printed; `None` if a ping's time or a transfer's rate is no number. A `ping` that had no answer
/// is left out.
///
/// ```
/// let seen = lastmeter_guest::seen::read(
///     "PING 10.77.0.1 (10.77.0.1): 56 data bytes\n\
///      64 bytes from 10.77.0.1: seq=0 ttl=64 time=2.000 ms\n\
///      [  6]   0.00-3.02   sec  2.00 MBytes  5550 Kbits/sec                  receiver\n",
/// );
/// let seen = seen.expect("numbers");
/// assert_eq!((seen.pings, seen.tcp), (vec![2e-3], vec![5.55e6]));
/// ```
pub fn read(output: &str) -> Option<Seen> {
    let mut pings: Vec<Vec<f64>> = Vec::new();
    let mut tcp = Vec::new();
    for line in output.lines() {
        if line.starts_with("PING ") {
            pings.push(Vec::new());
        } else if let (Some((_, rest)), Some(last)) = (line.split_once("time="), pings.last_mut()) {
            last.push(rest.strip_suffix(" ms")?.parse::<f64>().ok()? * 1e-3);
        } else if line.ends_with("receiver") {
            let rate = line.split(" Kbits/sec").next()?.split_whitespace().last()?;
            tcp.push(rate.parse::<f64>().ok()? * 1e3);
        }
    }
    let pings = pings.into_iter().filter(|times| !times.is_empty()).map(middle).collect();
    Some(Seen { pings, tcp })
}

/// The middle of some values, the upper one of two; NaN of none.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
PING 10.77.0.1 (10.77.0.1): 56 data bytes
64 bytes from 10.77.0.1: seq=0 ttl=64 time=2.000 ms
64 bytes from 10.77.0.1: seq=1 ttl=64 time=1.000 ms
64 bytes from 10.77.0.1: seq=2 ttl=64 time=9.000 ms
PING 10.77.0.1 (10.77.0.1): 472 data bytes
480 bytes from 10.77.0.1: seq=0 ttl=64 time=3.000 ms
[  6]   0.00-3.00   sec  2.06 MBytes  5760 Kbits/sec    0             sender
[  6]   0.00-3.02   sec  2.00 MBytes  5550 Kbits/sec                  receiver
[  6]   0.00-3.00   sec  3.23 MBytes  9040 Kbits/sec                  receiver
";

    #[test]
    fn what_a_guest_prints_is_read() {
        let seen = read(OUTPUT).expect("numbers");
        assert_eq!(seen, Seen { pings: vec![2e-3, 3e-3], tcp: vec![5.55e6, 9.04e6] });
        // No answer, no transfer.
        let none = read("PING 10.77.0.1 (10.77.0.1): 56 data bytes\n");
        assert_eq!(none, Some(Seen::default()));
        assert_eq!(read(&OUTPUT.replace("9.000 ms", "long")), None);
        assert_eq!(read(&OUTPUT.replace("5550", "-")), None);
        assert!(middle(Vec::new()).is_nan());
    }
}
