package authz_test

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// A function lets everybody list what is labelled with their name.
func ExampleFunc() {
	owners := func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		selected, _ := a.GetLabelSelector() // one that cannot be read narrows nothing
		for _, r := range selected {
			if r.String() == "owner="+a.GetUser().GetName() && a.GetVerb() == "list" {
				return authz.Allow, "it is theirs", nil
			}
		}
		return authz.NoOpinion, "add a selector: owner=" + a.GetUser().GetName(), nil
	}
	server, err := controlplane.New("garden").Storage(memory.Store{}).With(
		authz.Func("owners", owners), authorization.SubjectAccessReviews{}, core.Namespaces{}, core.ConfigMaps{},
	).Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	<-server.Ready()

	client := kubernetes.NewForConfigOrDie(server.ClientConfig())
	for _, selector := range []string{"owner=alice", "owner=bob"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "alice", ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Resource: "configmaps", Namespace: "default",
				LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: selector},
			},
		}}
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(selector, review.Status.Allowed, review.Status.Reason)
	}
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output:
	// owner=alice true it is theirs
	// owner=bob false owners: add a selector: owner=alice
}
