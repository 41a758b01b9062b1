package verify

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteText prints what failed, why checks were skipped, and how many there were.
func (r *Report) WriteText(to io.Writer) error {
	var text strings.Builder
	for _, one := range r.Failed() {
		fmt.Fprintf(&text, "%s\n\n", one)
	}
	why := map[string]int{}
	for _, one := range r.Results {
		if one.Outcome == Skipped {
			of := one.Resource
			if of == "" {
				of = "the server"
			}
			why[of+": "+one.Got]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		fmt.Fprintf(&text, "%d skipped of %s\n", why[reason], reason)
	}
	fmt.Fprintf(&text, "%s: %d passed, %d failed, %d skipped in %.1f s\n",
		r.Server, r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Seconds)
	_, err := io.WriteString(to, text.String())
	return err
}

// WriteJSON prints the report as JSON.
func (r *Report) WriteJSON(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteJUnit prints the report as JUnit XML, with a suite for the server and one for each
// resource.
func (r *Report) WriteJUnit(to io.Writer) error {
	type message struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Time    string   `xml:"time,attr"`
		Failure *message `xml:"failure,omitempty"`
		Skipped *message `xml:"skipped,omitempty"`
	}
	type testSuite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	var all struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []*testSuite
	}
	for _, one := range r.Results {
		name := one.Resource
		if name == "" {
			name = "server"
		}
		if len(all.Suites) == 0 || all.Suites[len(all.Suites)-1].Name != name {
			all.Suites = append(all.Suites, &testSuite{Name: name})
		}
		suite := all.Suites[len(all.Suites)-1]
		c := testCase{Name: one.ID, Class: name, Time: fmt.Sprintf("%.3f", one.Seconds)}
		suite.Tests++
		switch one.Outcome {
		case Failed:
			suite.Failures++
			c.Failure = &message{one.Title, one.String()}
		case Skipped:
			suite.Skipped++
			c.Skipped = &message{Message: one.Got}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(to, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(to)
	e.Indent("", "  ")
	return e.Encode(all)
}
