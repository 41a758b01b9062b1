package authn_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// Somebody logs in with a token of a file, and the administrator with the
// certificate of the kubeconfig.
func ExampleTokens() {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	tokens, kubeconfig := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "admin.kubeconfig")
	if err := os.WriteFile(tokens, []byte("s3cret,ann,u-1,\"staff,painters\"\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	server, err := controlplane.New("shop").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: kubeconfig},
		authn.Tokens{File: tokens},
		authz.Groups{Admins: []string{"staff"}},
		authentication.SelfSubjectReviews{},
	).Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	<-server.Ready()

	admin, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Println(err)
		return
	}
	ann := rest.AnonymousClientConfig(admin)
	ann.BearerToken = "s3cret"
	nobody := rest.AnonymousClientConfig(admin)
	nobody.BearerToken = "guess"
	for _, config := range []*rest.Config{admin, ann, nobody} {
		review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
			Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(review.Status.UserInfo.Username, review.Status.UserInfo.Groups)
	}
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output:
	// sailplane-admin [system:masters system:authenticated]
	// ann [staff painters system:authenticated]
	// Unauthorized
}
