package planetest

import (
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// around is how many equal lines are shown before and after one that differs.
const around = 3

// lineDiff lists the lines that turn the first text into the second, each after
// "- ", "+ " or two spaces for those around, indented by four spaces.
func lineDiff(before, after string) string {
	old, now := lines(before), lines(after)
	var b strings.Builder
	mark := func(mark string, lines []string) {
		for _, line := range lines {
			b.WriteString("    " + mark + line + "\n")
		}
	}
	for i, group := range difflib.NewMatcherWithJunk(old, now, false, nil).GetGroupedOpCodes(around) {
		if i > 0 {
			b.WriteString("      ...\n")
		}
		for _, code := range group {
			if code.Tag == 'e' {
				mark("  ", old[code.I1:code.I2])
				continue
			}
			mark("- ", old[code.I1:code.I2])
			mark("+ ", now[code.J1:code.J2])
		}
	}
	return b.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
