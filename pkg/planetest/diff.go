package planetest

import (
	"slices"
	"strings"
)

// around is how many equal lines are shown before and after one that differs.
const around = 3

// lineDiff lists the lines that turn the first text into the second, each after
// "- ", "+ " or two spaces for those around, indented by four spaces.
func lineDiff(before, after string) string {
	marked := compare(lines(before), lines(after))
	var b strings.Builder
	skipped := false
	for i, line := range marked {
		from, to := max(0, i-around), min(len(marked), i+around+1)
		if !slices.ContainsFunc(marked[from:to], func(l string) bool { return l[0] != ' ' }) {
			skipped = true
			continue
		}
		if skipped && b.Len() > 0 {
			b.WriteString("      ...\n")
		}
		skipped = false
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare marks the lines of two texts by their longest common subsequence.
func compare(a, b []string) []string {
	// common[i][j] is the length of that of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var marked []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			marked = append(marked, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || (i < len(a) && common[i+1][j] >= common[i][j+1]):
			marked = append(marked, "- "+a[i])
			i++
		default:
			marked = append(marked, "+ "+b[j])
			j++
		}
	}
	return marked
}
