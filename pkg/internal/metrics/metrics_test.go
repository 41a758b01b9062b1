package metrics

import (
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
)

func TestReduced(t *testing.T) {
	t.Parallel()
	observe := func(name string, buckets int) *dto.MetricFamily {
		t.Helper()
		r := prometheus.NewRegistry()
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: "h", Buckets: prometheus.LinearBuckets(1, 1, buckets)})
		r.MustRegister(h)
		for v := range buckets + 3 {
			h.Observe(float64(v))
		}
		families, err := reduced{r}.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) == 0 {
			return nil
		}
		return families[0]
	}
	cases := map[string]struct {
		reason  string
		name    string
		buckets int
		want    []float64 // upper bounds; nil: the metric is left out
	}{
		"few":        {"there is nothing to leave out", "few", 3, []float64{1, 2, 3}},
		"enough":     {"as many as may be left", "enough", Buckets, []float64{1, 2, 3, 4, 5, 6}},
		"one more":   {"the last is the one that says the most", "more", Buckets + 1, []float64{1, 3, 5, 7}},
		"many":       {"at equal distances", "many", 24, []float64{4, 8, 12, 16, 20, 24}},
		"objectives": {"objectives are made of these", "apiserver_request_sli_duration_seconds", 8, []float64{1, 2, 3, 4, 5, 6, 7, 8}},
		"deprecated": {"the same is there twice", "apiserver_request_slo_duration_seconds", 3, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			family := observe(tc.name, tc.buckets)
			if family == nil {
				if tc.want != nil {
					t.Fatalf("%s: the metric is left out", tc.reason)
				}
				return
			}
			h := family.Metric[0].GetHistogram()
			var got []float64
			for _, b := range h.Bucket {
				got = append(got, b.GetUpperBound())
				if want := uint64(b.GetUpperBound()) + 1; b.GetCumulativeCount() != want {
					t.Errorf("%s: %d observations up to %v, want %d", tc.reason, b.GetCumulativeCount(), b.GetUpperBound(), want)
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%s: buckets %v, want %v", tc.reason, got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("%s: buckets %v, want %v", tc.reason, got, tc.want)
				}
			}
			if want := uint64(tc.buckets + 3); h.GetSampleCount() != want {
				t.Errorf("%s: %d observations, want %d", tc.reason, h.GetSampleCount(), want)
			}
		})
	}
}
