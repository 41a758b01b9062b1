package apis_test

import (
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

func TestVerbs(t *testing.T) {
	t.Parallel()
	one := apples + "/gala"
	cases := map[string]struct {
		reason     string
		verbs      string
		discovered string
		refused    map[string]int
	}{
		"all": {
			reason:     "the default",
			discovered: "create delete deletecollection get list patch update watch",
		},
		"no watch": {
			reason:     "list without watch",
			verbs:      "create get list update patch delete deletecollection",
			discovered: "create delete deletecollection get list patch update",
			refused:    map[string]int{"GET " + apples + "?watch=1": 405},
		},
		"read": {
			reason:     "read-only",
			verbs:      "get list watch",
			discovered: "get list watch",
			refused: map[string]int{
				"POST " + apples: 405, "PUT " + one: 405, "PATCH " + one: 405, "DELETE " + one: 405, "DELETE " + apples: 405,
			},
		},
		"create": {
			reason:     "like a review",
			verbs:      "create",
			discovered: "create",
			refused:    map[string]int{"GET " + apples: 405, "DELETE " + apples: 405, "GET " + one: 404},
		},
		"no delete": {
			reason:     "kept for ever",
			verbs:      "create get list watch update patch",
			discovered: "create get list patch update watch",
			refused:    map[string]int{"DELETE " + one: 405, "DELETE " + apples: 405},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var options []apis.Option
			if c.verbs != "" {
				options = append(options, apis.Verbs(strings.Fields(c.verbs)...))
			}
			s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples", append(options, apis.ShortNames("ap"))...))
			discovered := s.call(200, "GET", "v1", "").Object["resources"].([]any)[0].(map[string]any)
			var verbs []string
			for _, v := range discovered["verbs"].([]any) {
				verbs = append(verbs, v.(string))
			}
			if got := strings.Join(verbs, " "); got != c.discovered {
				t.Errorf("%s: discovery has %s, want %s", c.reason, got, c.discovered)
			}
			if discovered["shortNames"].([]any)[0] != "ap" || discovered["singularName"] != "apple" {
				t.Errorf("discovery has %v", discovered)
			}
			for req, code := range c.refused {
				method, path, _ := strings.Cut(req, " ")
				s.call(code, method, path, "", "Content-Type", "application/merge-patch+json")
			}
		})
	}
}
