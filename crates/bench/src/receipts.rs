//! Receipts: a table of lines as CSV, generated, of which about one in a hundred is asked for.

use crate::content::Random;

/// The first line.
pub const HEADER: &str = "number,item,store,price,kind,note\n";
/// Prices are below this; those from [`PRICE_ASKED`] on are asked for.
const PRICES: u64 = 1_000;
/// The least price that is asked for: one line in a hundred has it or more.
pub const PRICE_ASKED: u64 = 990;
/// The word that one line in a hundred has.
pub const WORD: &str = "refund";
const LINES_WITH_WORD: u64 = 100;
const NOTES: [&str; 4] = [
    "paid in cash at the counter in the morning",
    "paid by card, delivered two days afterwards",
    "ordered by telephone and fetched in person",
    "ordered by letter, and paid on delivery",
];

/// At least `bytes` bytes of whole lines, of which the first has number `number`; the same for the same seed.
/// Returns them with the number of the line that follows.
pub fn receipts(seed: u64, number: u64, bytes: usize) -> (Vec<u8>, u64) {
    let mut random = Random(seed ^ (number << 20));
    let mut text = String::with_capacity(bytes + 200);
    let mut number = number;
    while text.len() < bytes {
        let [item, store, price] = [5_000, 300, PRICES].map(|end| random.below(end));
        let kind = if random.below(LINES_WITH_WORD) == 0 { WORD } else { "sale" };
        let note = usize::try_from(random.below(4)).map_or("", |note| NOTES[note]);
        text.push_str(&format!("{number:010},item {item:04},store {store:03},{price},{kind},{note}\n"));
        number += 1;
    }
    (text.into_bytes(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_a_hundred_is_asked_for() {
        let (text, next) = receipts(1, 5, 1 << 20);
        assert_eq!((&text, next), (&receipts(1, 5, 1 << 20).0, 5 + lines(&text, |_| true)));
        let price = |line: &str| line.split(',').nth(3).and_then(|price| price.parse::<u64>().ok());
        let asked = lines(&text, |line| price(line).expect("a price") >= PRICE_ASKED);
        let with_word = lines(&text, |line| line.contains(WORD));
        for found in [asked, with_word] {
            assert!((next / 200..next / 60).contains(&found), "{found} of {next}");
        }
    }

    fn lines(text: &[u8], is_wanted: impl Fn(&str) -> bool) -> u64 {
        let text = std::str::from_utf8(text).expect("text");
        text.lines().filter(|line| is_wanted(line)).count().try_into().expect("it is small")
    }
}
