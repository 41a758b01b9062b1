package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	const printed = "=== RUN   TestMap\n--- FAIL: TestMap (0.79s)\n    --- FAIL: TestMap/lazy (0.00s)\n    --- PASS: TestMap/eager (0.00s)\nFAIL\n"
	for name, tc := range map[string]struct {
		reason, report, printed string
		want                    outcome
	}{
		"Specs": {
			reason: "ginkgo's are counted, and not the test that runs them",
			report: `[{"SpecReports": [
				{"ContainerHierarchyTexts": ["Client", "Get"], "LeafNodeType": "It", "LeafNodeText": "gets", "State": "passed"},
				{"ContainerHierarchyTexts": ["Client"], "LeafNodeType": "It", "LeafNodeText": "sets", "State": "failed", "Failure": {"Message": "no\n  way"}},
				{"LeafNodeType": "It", "LeafNodeText": "later", "State": "pending"},
				{"LeafNodeType": "BeforeSuite", "State": "passed"}]}]`,
			printed: "--- FAIL: TestClient (2.4s)\n",
			want:    outcome{passed: 1, skipped: 1, failed: []failure{{"Client sets", "no way"}}},
		},
		"Suite": {
			reason: "what fails before all specs has no text",
			report: `[{"SpecReports": [{"LeafNodeType": "BeforeSuite", "State": "failed", "Failure": {"Message": "no etcd"}}]}]`,
			want:   outcome{failed: []failure{{"BeforeSuite", "no etcd"}}},
		},
		"Others": {
			reason:  "of other tests those count that have none below them",
			report:  `[{"SpecReports": null}]`,
			printed: printed,
			want:    outcome{passed: 1, failed: []failure{{"TestMap/lazy", "see -v"}}},
		},
		"NoReport": {
			reason:  "a package may do without ginkgo",
			printed: printed,
			want:    outcome{passed: 1, failed: []failure{{"TestMap/lazy", "see -v"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			if tc.report != "" {
				if err := os.WriteFile(file, []byte(tc.report), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := read(file, tc.printed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(outcome{}, failure{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSurprises(t *testing.T) {
	explained := map[string]string{"Client sings": "it has no voice", "TestNews": "downloads them"}
	sings := []failure{{name: "Client sings"}}
	for name, tc := range map[string]struct {
		reason string
		failed []failure
		ok     bool
	}{
		"Known":   {"it is explained", sings, true},
		"Unknown": {"nobody explained it", append([]failure{{name: "other"}}, sings...), false},
		"Passes":  {"the explanation is out of date", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := surprises([]result{{name: "pkg/client", runs: []outcome{{failed: tc.failed}}}}, explained)
			if (err == nil) != tc.ok {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
