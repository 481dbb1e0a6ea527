//! The coefficients of Reed-Solomon parity, and the small systems solved to reconstruct lost units.
//!
//! Parity unit `i` is the sum over the data units `j` of `COEFFICIENTS[i][j] * data[j]`. The matrix is a
//! Cauchy matrix, `1 / (x_i + y_j)` with `x_i = 255 - i` and `y_j = j`, each column divided by its first
//! element and then each row by its first element. So the first row and the first column are all ones:
//! rs(k,1) is XOR and rs(1,m) is a mirror. Every square minor of a Cauchy matrix is non-zero, and scaling
//! rows and columns keeps that; hence any `k` of the `k + m` units determine the others. The numbers depend
//! on neither `k` nor `m`: rs(k,2) is rs(k,1) with one more row.

use super::field::{inverse, mul};
use crate::scheme::{PARITY_MAX, WIDTH_MAX};

const ROWS: usize = PARITY_MAX as usize;
const COLUMNS: usize = WIDTH_MAX as usize - 1;

/// One coefficient per output.
pub(super) type Coefficients = [u8; ROWS];

/// A square system of at most as many rows as there are parity units.
pub(super) type Small = [[u8; ROWS]; ROWS];

/// `COEFFICIENTS[parity][data]`. They determine the parity bytes on disk, so they can never change.
pub(super) static COEFFICIENTS: [[u8; COLUMNS]; ROWS] = coefficients();

/// The inverse of the `size` by `size` corner of `matrix`, by Gauss-Jordan. The corner consists of rows and
/// columns of the matrix above (or is a single one), so no minor of it is zero and rows need no swapping.
pub(super) fn invert(mut matrix: Small, size: usize) -> Small {
    let mut inverted: Small = [[0; ROWS]; ROWS];
    for (i, row) in inverted.iter_mut().enumerate() {
        row[i] = 1;
    }
    for column in 0..size {
        let scale = inverse(matrix[column][column]);
        for i in 0..size {
            matrix[column][i] = mul(scale, matrix[column][i]);
            inverted[column][i] = mul(scale, inverted[column][i]);
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row][column];
            for i in 0..size {
                matrix[row][i] ^= mul(factor, matrix[column][i]);
                inverted[row][i] ^= mul(factor, inverted[column][i]);
            }
        }
    }
    inverted
}

const fn coefficients() -> [[u8; COLUMNS]; ROWS] {
    let mut table = [[0; COLUMNS]; ROWS];
    let mut i: u8 = 0;
    while i < PARITY_MAX {
        let mut j: u8 = 0;
        while j < WIDTH_MAX - 1 {
            let row = mul(cauchy(i, j), inverse(cauchy(i, 0)));
            let column = mul(cauchy(0, j), inverse(cauchy(0, 0)));
            table[i as usize][j as usize] = mul(row, inverse(column));
            j += 1;
        }
        i += 1;
    }
    table
}

const fn cauchy(parity: u8, data: u8) -> u8 {
    inverse((255 - parity) ^ data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Determinant by expansion along the first row.
    fn determinant(rows: &[usize], columns: &[usize]) -> u8 {
        let Some((&row, below)) = rows.split_first() else { return 1 };
        (0..columns.len()).fold(0, |sum, i| {
            let others: Vec<usize> = [&columns[..i], &columns[i + 1..]].concat();
            sum ^ mul(COEFFICIENTS[row][columns[i]], determinant(below, &others))
        })
    }

    fn choices(of: usize, from: usize, first: usize) -> Vec<Vec<usize>> {
        if of == 0 {
            return vec![Vec::new()];
        }
        (first..from)
            .flat_map(|i| choices(of - 1, from, i + 1).into_iter().map(move |rest| [vec![i], rest].concat()))
            .collect()
    }

    /// Any `k` of `k + m` units determine the rest exactly when no square minor of the matrix is zero. As all
    /// shapes share one matrix, this covers every k + m up to 64 and m up to 4. Orders 1 to 3 are expanded
    /// directly; order 4, with over half a million minors, through the 3 by 3 minors of the rows below the
    /// first, which is all ones.
    #[test]
    fn every_square_minor_is_non_zero() {
        for order in 1..=3 {
            for rows in choices(order, ROWS, 0) {
                for columns in choices(order, COLUMNS, 0) {
                    assert_ne!(determinant(&rows, &columns), 0, "rows {rows:?}, columns {columns:?}");
                }
            }
        }
        let mut minors = vec![0u8; COLUMNS * COLUMNS * COLUMNS];
        let at = |a: usize, b: usize, c: usize| (a * COLUMNS + b) * COLUMNS + c;
        for columns in choices(3, COLUMNS, 0) {
            minors[at(columns[0], columns[1], columns[2])] = determinant(&[1, 2, 3], &columns);
        }
        for a in 0..COLUMNS {
            for b in a + 1..COLUMNS {
                for c in b + 1..COLUMNS {
                    for d in c + 1..COLUMNS {
                        let sum = minors[at(b, c, d)]
                            ^ minors[at(a, c, d)]
                            ^ minors[at(a, b, d)]
                            ^ minors[at(a, b, c)];
                        assert_ne!(sum, 0, "columns {a} {b} {c} {d}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_row_and_column_are_ones() {
        assert_eq!(COEFFICIENTS[0], [1; COLUMNS]);
        assert!(COEFFICIENTS.iter().all(|row| row[0] == 1));
    }

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        for columns in [[0, 1, 2, 3], [5, 9, 33, 62], [59, 60, 61, 62]] {
            for size in 1..=ROWS {
                let matrix = COEFFICIENTS.map(|row| columns.map(|column| row[column]));
                let inverted = invert(matrix, size);
                for (i, row) in inverted.iter().enumerate().take(size) {
                    for j in 0..size {
                        let products = row.iter().zip(&matrix).take(size).map(|(a, line)| mul(*a, line[j]));
                        let sum = products.fold(0, |sum, product| sum ^ product);
                        assert_eq!(sum, u8::from(i == j), "{columns:?}, size {size}, {i} {j}");
                    }
                }
            }
        }
    }
}
