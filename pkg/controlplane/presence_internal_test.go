package controlplane

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// TestStrangers: a server says once of another one that it has other authorities, and only of one that has
// them for long, as they reach all in seconds.
func TestStrangers(t *testing.T) {
	t.Parallel()
	authority, _, err := cert.GenerateSelfSignedCertKey("a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := dynamiccertificates.NewStaticCAContent("authority", authority)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{clients: clients}
	var said []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	lease := func(id, authority string) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{authorityAnnotation: authority, addressAnnotation: "192.0.2.1:1"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id},
		}
	}
	same, other, older := lease("same", s.clientAuthorities()), lease("other", "another one"), lease("older", "")
	late, changed := lease("changed", "another one"), lease("changed", s.clientAuthorities())
	var counts map[string]int
	for n := range 2 * strangerAfter {
		all := []coordinationv1.Lease{same, other, older, late}
		if n == strangerAfter-1 { // it has the change now, and loses it again
			all[3] = changed
		}
		if n > strangerAfter {
			all = all[:3]
		}
		counts = s.strangers(ctx, all, counts)
	}
	if len(said) != 1 || !strings.Contains(said[0], `"server"="other" "address"="192.0.2.1:1"`) {
		t.Errorf("it says %q, want one line about the other one", said)
	}
}
