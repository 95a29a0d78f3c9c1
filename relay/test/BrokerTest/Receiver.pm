package BrokerTest::Receiver; sub new {die} 1;
