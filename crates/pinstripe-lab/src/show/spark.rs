//! Draws a series of values within one line of text.

/// The characters from the lowest to the highest value.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A range smaller than this share of its middle is drawn flat, so that it does not look like a
/// large change.
const FLAT: f64 = 0.02;

/// Draws each value as a step between the lowest and the highest value, with a bar before each
/// index in `breaks`: `▁▂▁│▇█▇`. Only the last `most` values are shown.
pub fn spark(values: &[f64], breaks: &[usize], most: usize) -> String {
    let first = values.len().saturating_sub(most);
    let shown = &values[first..];
    let low = shown.iter().copied().fold(f64::MAX, f64::min);
    let high = shown.iter().copied().fold(f64::MIN, f64::max);
    let is_flat = high - low <= FLAT * (high + low).abs() / 2.0;
    let step = |value: f64| match is_flat {
        true => STEPS[STEPS.len() / 2],
        false => STEPS[((value - low) / (high - low) * (STEPS.len() - 1) as f64).round() as usize],
    };
    let mut line = String::new();
    for (at, value) in shown.iter().enumerate() {
        if at > 0 && breaks.contains(&(first + at)) {
            line.push('│');
        }
        line.push(step(*value));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_the_lowest_to_the_highest_and_breaks_where_it_changed() {
        assert_eq!(spark(&[1.0, 2.0, 1.0, 8.0, 7.0], &[3], 9), "▁▂▁│█▇");
        assert_eq!(spark(&[1.0, 2.0, 1.0, 8.0, 7.0], &[1, 3], 2), "█▁");
        assert_eq!(spark(&[100.0, 100.4, 99.9], &[], 9), "▅▅▅");
        assert_eq!(spark(&[0.0; 3], &[], 9), "▅▅▅");
        assert_eq!(spark(&[], &[], 9), "");
    }
}
