// The webhook suite of the Go JobSet, with jobset-webhook as the subject.
package webhooktest

import (
	"context"
	"net"
	"strconv"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/test/program"
)

// What the cases use.
var (
	k8sClient client.Client
	ctx       context.Context
)

func TestWebhook(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Webhook Suite")
}

var _ = ginkgo.BeforeSuite(func() {
	ctx = context.Background()
	// The deployed registration belongs to the deployed CRD: its matchConditions read fields of it.
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{program.Manifest("crds", "jobset.x-k8s.io_jobsets.yaml")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			Paths: []string{program.Manifest("kustomize", "webhook-configurations.yaml")},
		},
	}
	config, err := environment.Start()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(environment.Stop)
	gomega.Expect(jobset.AddToScheme(scheme.Scheme)).To(gomega.Succeed())
	k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())

	// jobset-webhook issues its own certificate and writes its CA into the registration, as it does where it is deployed.
	serving := environment.WebhookInstallOptions
	stop, err := program.Start("jobset-webhook", environment.KubeConfig,
		"--listen="+net.JoinHostPort(serving.LocalServingHost, strconv.Itoa(serving.LocalServingPort)),
		"--namespace=default", "--extra-dns-name="+serving.LocalServingHost, "--agent-image=localhost/agent:test",
		"--drain-delay=0s")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(stop)
})
